"""The zoo: every family is built, remembers, stays causal, and comes back from disk bit for bit."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.cache_utils import get_layer_types_and_kwargs

from graftline import zoo
from graftline.errors import ConfigError
from graftline.zoo.tokenizer import SMALLEST_VOCAB, SPECIAL_TOKENS

torch.set_num_threads(1)

STATEFUL = [
    name for name in zoo.families() if {"state", "conv"} & set(zoo.describe(name).composition.split(" + "))
]
every_family = pytest.mark.parametrize("family", zoo.families())


@functools.cache
def tiny(family: str) -> Any:
    return zoo.build_model(family)


def tokens(count: int, vocab_size: int = 512, seed: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab_size, (1, count), generator=generator)


@torch.no_grad()
def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids).logits


def digest(model: Any) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


# --- names -------------------------------------------------------------------------------------------------


def test_names_and_aliases_are_unique() -> None:
    infos = [zoo.describe(name) for name in zoo.families()]
    names = [name for info in infos for name in (info.name, *info.aliases)]
    assert len(names) == len(set(names))
    assert len(infos) >= 60


def test_aliases_and_dashes_lead_to_the_family() -> None:
    assert zoo.describe("granite4_hybrid").name == "granitemoehybrid"
    assert zoo.describe("modernbert-decoder").name == "modernbert_decoder"
    assert zoo.build_config("kimi_k3").model_type == "kimi_linear"


def test_an_unknown_family_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'qwen3_6'.*did you mean 'qwen3_5'"):
        zoo.build_model("qwen3_6")


@every_family
def test_the_description_names_the_kinds_of_layer_that_the_library_sees(family: str) -> None:
    words = {
        "full_attention": {"full"},
        "sliding_attention": {"swa"},
        "chunked_attention": {"chunked"},
        "linear_attention": {"state"},
        "conv": {"conv"},
        "indexed_attention": {"indexed"},
        "hybrid_sliding": {"swa"},
        "hybrid": {"full"},
        "compressed_sparse_attention": {"compressed"},
        "heavily_compressed_attention": {"compressed"},
        "dummy": set(),
    }
    if family in ("rwkv", "xlstm"):
        assert zoo.describe(family).composition == "state"  # the library has no layer kinds for these
        return
    layer_types = get_layer_types_and_kwargs(zoo.build_config(family))[0]
    seen = set().union(*(words[kind] for kind in layer_types))
    said = set(zoo.describe(family).composition.split(" + "))
    if any(kind.startswith("hybrid") for kind in layer_types):
        assert seen <= said
        assert said - seen <= {"state", "conv"}
    else:
        assert seen == said


# --- weights -----------------------------------------------------------------------------------------------


@every_family
def test_weights_follow_from_name_and_seed_alone(family: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = digest(zoo.build_model(family, seed=5))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert digest(zoo.build_model(family, seed=5)) == first
    assert digest(zoo.build_model(family, seed=6)) != first


@every_family
def test_logits_are_spread_and_not_degenerate(family: str) -> None:
    model = tiny(family)
    assert not model.training
    out = logits(model, tokens(48))[0]
    assert out.shape == (48, 512)
    assert bool(out.isfinite().all())
    assert 0.3 < float(out.std()) < 30
    entropy = -(out.log_softmax(-1).exp() * out.log_softmax(-1)).sum(-1).mean()
    assert 1.0 < float(entropy) < math.log(512) - 0.05
    # Different contexts give different predictions.
    assert len(set(out.argmax(-1).tolist())) > 12


@every_family
def test_a_token_sees_nothing_that_follows_it(family: str) -> None:
    ids = tokens(61)
    longer, shorter = logits(tiny(family), ids)[:, :23], logits(tiny(family), ids[:, :23])
    torch.testing.assert_close(longer, shorter, atol=1e-4, rtol=0)


@every_family
def test_greedy_text_is_varied(family: str) -> None:
    out = tiny(family).generate(tokens(40), max_new_tokens=64, min_new_tokens=64, do_sample=False)
    assert len(set(out[0, 40:].tolist())) >= 16


@pytest.mark.parametrize("family", ["gemma3", "gpt_oss", "qwen3_5", "kimi_linear", "lfm3", "deepseek_v4"])
def test_greedy_text_of_demo_models_is_varied(family: str) -> None:
    sizes = zoo.preset("demo")
    model = zoo.build_model(family, sizes=sizes)
    prompt = tokens(40, sizes.vocab_size)
    out = model.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False)
    assert len(set(out[0, 40:].tolist())) >= 32


# --- states: a wrong one must show -------------------------------------------------------------------------


def _state_tensors(model: Any, out: Any) -> dict[str, list[torch.Tensor]]:
    """State tensors by kind, wherever a family keeps them."""
    cache = getattr(out, "past_key_values", None)
    if cache is None:
        cache = getattr(out, "cache_params", None)
    found: dict[str, list[torch.Tensor]] = {"recurrent": [], "conv": []}
    for layer in getattr(cache, "layers", ()):
        for kind in found:
            states = getattr(layer, f"{kind}_states", None)
            found[kind] += [t for t in (states or {}).values() if torch.is_tensor(t)]
    found["recurrent"] += [t for t in getattr(cache, "linear_cache", ()) if torch.is_tensor(t)]  # minimax
    found["recurrent"] += list(getattr(out, "state", None) or [])  # rwkv
    found["recurrent"] += [t for state in getattr(cache, "rnn_state", {}).values() for t in state]  # xlstm
    for module in model.modules():  # recurrent_gemma
        for kind, attribute in (("recurrent", "recurrent_states"), ("conv", "conv1d_state")):
            if torch.is_tensor(getattr(module, attribute, None)):
                found[kind].append(getattr(module, attribute))
    return {kind: states for kind, states in found.items() if states}


@torch.no_grad()
def _continue_without(family: str, lost: str | None) -> tuple[torch.Tensor, set[str]]:
    """Logits of 8 single steps after 48 tokens, one kind of state set to zero in between."""
    model, ids = tiny(family), tokens(56)
    first = {"past_key_values": DynamicCache(config=model.config)} if family == "recurrent_gemma" else {}
    out = model(input_ids=ids[:, :48], use_cache=True, **first)
    states = _state_tensors(model, out)
    for state in states.get(lost or "", ()):
        state.zero_()
    name = next(key for key in ("state", "cache_params", "past_key_values") if key in out or key in first)
    cache = first[name] if name in first else out[name]
    steps = []
    for at in range(48, 56):
        more = {name: cache, "use_cache": True}
        if name == "past_key_values":
            more["position_ids"] = torch.tensor([[at]])
        steps.append(model(input_ids=ids[:, at : at + 1], **more).logits)
    return torch.cat(steps, 1), set(states)


@pytest.mark.parametrize("family", STATEFUL)
def test_losing_a_state_shows_in_the_logits(family: str) -> None:
    kept, kinds = _continue_without(family, None)
    torch.testing.assert_close(kept, logits(tiny(family), tokens(56))[:, 48:], atol=1e-4, rtol=0)
    assert kinds
    for kind in kinds:
        lost, _ = _continue_without(family, kind)
        assert float((lost - kept).abs().amax()) > 0.05, kind


# --- sizes -------------------------------------------------------------------------------------------------


@every_family
def test_every_family_takes_every_preset(family: str) -> None:
    for name, least, most in (("demo", 3e6, 11e6), ("bench", 15e6, 50e6)):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(zoo.build_config(family, sizes=zoo.preset(name)))
        assert least < sum(p.numel() for p in model.parameters()) < most


def test_a_demo_model_runs() -> None:
    sizes = zoo.preset("demo")
    out = logits(zoo.build_model("qwen3_next", sizes=sizes), tokens(200, sizes.vocab_size))
    assert out.shape == (1, 200, sizes.vocab_size)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"layer": 3}, "no size is named 'layer'.*did you mean 'layers'"),
        ({"layers": 3}, "'layers' is 3"),
        ({"experts": 1}, "'experts' is 1"),
        ({"heads": 3}, "'hidden_size' is 64, not a multiple of heads"),
        ({"kv_heads": 3}, "'heads' is 4, not a multiple of kv_heads"),
        ({"head_dim": 12}, "'head_dim' is 12, not a multiple of 8"),
        ({"window_tokens": 0}, "'window_tokens' is 0"),
    ],
)
def test_sizes_that_cannot_work_are_refused(overrides: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        zoo.Sizes().replace(overrides)


def test_sizes_that_one_family_cannot_have_are_refused() -> None:
    sizes = zoo.Sizes(hidden_size=96, heads=6, kv_heads=3)
    assert zoo.build_config("llama", sizes=sizes).hidden_size == 96
    with pytest.raises(ConfigError, match="'hidden_size' is 96, not a multiple of 64"):
        zoo.build_config("xlstm", sizes=sizes)


@pytest.mark.parametrize(
    "overrides",
    [
        {"layers": 7, "experts": 6, "window_tokens": 24, "chunk_tokens": 12},
        {"hidden_size": 128, "heads": 8, "kv_heads": 4, "head_dim": 32, "state_size": 8},
        {"kv_heads": 4, "window_tokens": 1, "experts": 2},
    ],
    ids=["deeper", "wider", "narrow"],
)
@every_family
def test_every_family_takes_other_sizes(family: str, overrides: dict[str, int]) -> None:
    model = zoo.build_model(family, sizes=zoo.Sizes().replace(overrides))
    assert bool(logits(model, tokens(50)).isfinite().all())


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'huge'.*tiny, demo, bench"):
        zoo.preset("huge")


# --- tokenizer ---------------------------------------------------------------------------------------------


@functools.cache
def tokenizer(vocab_size: int = 2048) -> Any:
    return zoo.build_tokenizer(vocab_size)


@pytest.mark.parametrize("vocab_size", [SMALLEST_VOCAB, 512, 2048, 8192, 20000])
def test_a_tokenizer_has_exactly_the_tokens_asked_for(vocab_size: int) -> None:
    made = zoo.build_tokenizer(vocab_size)
    assert len(made) == vocab_size
    assert sorted(made.get_vocab().values()) == list(range(vocab_size))
    assert made.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(8))
    assert (made.pad_token_id, made.bos_token_id, made.eos_token_id) == (0, 1, 2)
    assert all(made.decode([token]) for token in range(vocab_size))


def test_the_tokenizer_learns_from_its_corpus() -> None:
    text = "The library keeps a copy of every newspaper that was printed in the region."
    assert len(tokenizer()(text)["input_ids"]) < len(text) / 2.5


@settings(deadline=None, max_examples=150)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_decoding_gives_the_text_back(text: str) -> None:
    ids = tokenizer()(text)["input_ids"]
    assert tokenizer().decode(ids) == text
    assert all(0 <= token < 2048 for token in ids)


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"100 tokens is too small.*at least 264"):
        zoo.build_tokenizer(100)


_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=20)
_parts = st.lists(st.builds(lambda text: {"type": "text", "text": text}, _text), max_size=3)
_arguments = st.dictionaries(_text, st.integers() | _text, max_size=2)
_call = st.builds(
    lambda name, arguments, dumped: {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments) if dumped else arguments},
    },
    _text,
    _arguments,
    st.booleans(),
)
_plain = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "user", "assistant", "tool", "developer"]),
    _text | _parts,
)
_calling = st.builds(
    lambda content, calls: {"role": "assistant", "content": content, "tool_calls": calls},
    st.none() | _text,
    st.lists(_call, min_size=1, max_size=2),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(_plain | _calling, min_size=1, max_size=6), st.none() | st.just([{"type": "function"}]))
def test_conversations_only_grow_at_their_end(messages: list[dict[str, Any]], tools: Any) -> None:
    def render(count: int, prompt: bool) -> list[int]:
        return tokenizer().apply_chat_template(
            messages[:count], tools=tools, add_generation_prompt=prompt, tokenize=True, return_dict=False
        )

    whole = render(len(messages), prompt=False)
    for count in range(1, len(messages)):
        start = render(count, prompt=False)
        assert whole[: len(start)] == start
        asked = render(count, prompt=True)
        assert (whole[: len(asked)] == asked) == (messages[count]["role"] == "assistant")


def test_a_tool_call_is_rendered_as_json() -> None:
    arguments = {"path": "a.py", "limit": 3}
    for given_arguments in (arguments, json.dumps(arguments)):
        call = {"function": {"name": "read", "arguments": given_arguments}}
        text = tokenizer().apply_chat_template(
            [{"role": "assistant", "content": None, "tool_calls": [call]}], tokenize=False
        )
        body = text.removeprefix("<bos><|assistant|>").removesuffix("<|end|>")
        assert json.loads(body) == {"name": "read", "arguments": arguments}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "robot", "content": "x"}, "role robot"),
        ({"role": "user", "content": [{"type": "image", "url": "x"}]}, "content part of type image"),
    ],
)
def test_what_the_template_does_not_know_is_refused(message: dict[str, Any], reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        tokenizer().apply_chat_template([message], tokenize=False)


# --- checkpoints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@every_family
def test_a_checkpoint_comes_back_bit_for_bit(family: str, dtype: str, tmp_path: Path) -> None:
    made = zoo.make_model(family, tmp_path / "model", dtype=dtype)
    assert {file.name for file in made.path.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert made.bytes == sum(file.stat().st_size for file in made.path.iterdir())
    wanted = zoo.build_model(family, dtype=getattr(torch, dtype))
    assert made.parameters == sum(p.numel() for p in wanted.parameters())
    loaded = AutoModelForCausalLM.from_pretrained(made.path)
    assert type(loaded) is type(wanted)
    assert loaded.dtype == getattr(torch, dtype)
    assert {n: t.dtype for n, t in loaded.state_dict().items()} == {
        n: t.dtype for n, t in wanted.state_dict().items()
    }
    assert digest(loaded) == digest(wanted)
    assert torch.equal(logits(loaded, tokens(24)), logits(wanted, tokens(24)))


@every_family
def test_the_tokenizer_of_a_checkpoint_loads(family: str, tmp_path: Path) -> None:
    made = zoo.make_model(family, tmp_path / "model")
    loaded = AutoTokenizer.from_pretrained(made.path)
    assert len(loaded) == 512
    text = "def main():\n    return {'a': 1}  # done, 12 tokens"
    ids = loaded(text)["input_ids"]
    assert loaded.decode(ids) == text
    config = json.loads((made.path / "config.json").read_text())
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(loaded, name) == config.get(name, 0)  # rwkv has no padding
    rendered = loaded.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert rendered == "<bos><|user|>Hi<|end|>"


def test_the_same_arguments_give_the_same_files(tmp_path: Path) -> None:
    first, second = (zoo.make_model("lfm3", tmp_path / name, seed=4) for name in ("a", "b"))
    for file in first.path.iterdir():
        assert file.read_bytes() == (second.path / file.name).read_bytes()
    other = zoo.make_model("lfm3", tmp_path / "c", seed=5)
    weights = "model.safetensors"
    assert (other.path / weights).read_bytes() != (first.path / weights).read_bytes()


def test_overrides_change_the_preset(tmp_path: Path) -> None:
    made = zoo.make_model(
        "gemma3", tmp_path / "m", overrides={"window_tokens": 24, "vocab_size": 600, "layers": 6}
    )
    config = json.loads((made.path / "config.json").read_text())
    assert (config["sliding_window"], config["vocab_size"], config["num_hidden_layers"]) == (24, 600, 6)
    assert len(AutoTokenizer.from_pretrained(made.path)) == 600


@pytest.fixture
def full_directory(tmp_path: Path) -> Path:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("keep me")
    return tmp_path / "full"


def test_a_directory_with_something_in_it_is_left_alone(full_directory: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not empty.*set overwrite"):
        zoo.make_model("llama", full_directory)
    with pytest.raises(ConfigError, match="holds no model, so it is not overwritten"):
        zoo.make_model("llama", full_directory, overwrite=True)
    with pytest.raises(ConfigError, match="is not a directory"):
        zoo.make_model("llama", full_directory / "notes.txt", overwrite=True)
    with pytest.raises(ConfigError, match="cannot make"):
        zoo.make_model("llama", full_directory / "notes.txt" / "model")
    assert (full_directory / "notes.txt").read_text() == "keep me"
    assert [path.name for path in full_directory.parent.iterdir()] == ["full"]


def test_a_model_is_replaced_when_asked(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    zoo.make_model("llama", target)
    (target / "extra.txt").write_text("old")
    zoo.make_model("qwen3", target, overwrite=True)
    assert json.loads((target / "config.json").read_text())["model_type"] == "qwen3"
    assert not (target / "extra.txt").exists()
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    made = zoo.make_model("llama", tmp_path)
    assert made.path == tmp_path
    assert (tmp_path / "config.json").is_file()


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'int8'.*float32, bfloat16, float16"):
        zoo.make_model("llama", tmp_path / "m", dtype="int8")
    assert not (tmp_path / "m").exists()
