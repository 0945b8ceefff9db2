"""Controls: the checks of the other files would see a fault. Also what the runner refuses and promises."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from runner_support import (
    LARGE,
    SERVED,
    Pools,
    advance,
    advance_all,
    assert_equal,
    difference,
    library_model,
    make_runner,
    poison,
    prompt,
    reference,
)
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from graftline.components import Window
from graftline.engine.batch import Row
from graftline.engine.layouts import FULL, STATE, plan_layout
from graftline.engine.runner import Runner
from graftline.errors import ConfigError, UnsupportedModelError
from graftline.zoo import build_config, build_model

BOUNDARY = 24


def has(component: str) -> list[str]:
    layouts = {family: plan_layout(build_config(family)) for family in SERVED}
    return [
        family
        for family, layout in layouts.items()
        if any(
            component == c.name or (component == "swa" and c.name.startswith("swa"))
            for c in layout.components
        )
    ]


def restored(family: str, page_tokens: int):
    """A sequence that was computed to the boundary and forked there, and the expected next logits."""
    runner, pools = make_runner(family, page_tokens)
    tokens = prompt(1, 40)
    parent = pools.sequence(tokens)
    advance_all(runner, parent, (13, BOUNDARY - 13))
    child = pools.fork(parent, tokens, BOUNDARY, pools.save(parent))
    return runner, pools, child, reference(family, tuple(tokens))[BOUNDARY]


def next_logits(runner: Runner, child) -> torch.Tensor:
    return advance(runner, [(child, 1)])[0]


@pytest.mark.parametrize("family", has(STATE))
def test_a_zeroed_state_shows(family: str) -> None:
    runner, _, child, expected = restored(family, 4)
    runner.pools[STATE].zero(child.state_slot)
    assert difference(next_logits(runner, child), expected) > LARGE


@pytest.mark.parametrize("family", has("swa"))
def test_the_window_holds_exactly_its_tokens(family: str) -> None:
    """The oldest token that the window sees matters; the one before it does not, bit for bit."""
    for behind, matters in ((0, True), (1, False)):
        runner, _, child, expected = restored(family, 1)
        untouched, _, twin, _ = restored(family, 1)
        for component in runner.layout.components:
            if isinstance(component.rule, Window):
                oldest = BOUNDARY - component.rule.lookback_tokens - behind
                slot = child.tables[component.name][oldest // runner.page_tokens]
                if slot >= 0:  # the rule asks for no page beyond the window
                    for tensor in runner.pools[component.name].tensors.values():
                        tensor[slot, oldest % runner.page_tokens] = 0
        logits = next_logits(runner, child)
        if matters:
            assert difference(logits, expected) > LARGE
        else:
            assert torch.equal(logits, next_logits(untouched, twin))


@pytest.mark.parametrize("family", has(FULL))
def test_a_page_of_another_sequence_shows(family: str) -> None:
    runner, pools, child, expected = restored(family, 4)
    stranger = pools.sequence(prompt(9, 40))
    advance_all(runner, stranger, (40,))
    differences = []
    for number in range(BOUNDARY // runner.page_tokens):
        table = child.tables[FULL].copy()
        child.tables[FULL][number] = stranger.tables[FULL][number]
        differences.append(difference(advance_without_trace(runner, child), expected))
        child.tables[FULL][:] = table
    assert max(differences) > LARGE
    if not any("indexed" in layer.kind or "compressed" in layer.kind for layer in runner.layout.layers):
        assert min(differences) > LARGE / 10  # an indexer need not choose anything of a page
    assert_equal(next_logits(runner, child), expected)


def advance_without_trace(runner: Runner, child) -> torch.Tensor:
    """One step after which the sequence stands where it stood; its new token is written again later."""
    kept = {name: {k: t.clone() for k, t in pool.tensors.items()} for name, pool in runner.pools.items()}
    logits = next_logits(runner, child)
    child.start -= 1
    for name, tensors in kept.items():
        for key, tensor in tensors.items():
            runner.pools[name].tensors[key].copy_(tensor)
    return logits


@pytest.mark.parametrize("family", ["gemma3", "qwen3_next", "inkling", "deepseek_v4", "dots3_note"])
def test_a_step_changes_only_its_places(family: str) -> None:
    """Nothing but the new tokens' places, the rest of a begun page and the state slot is written."""
    runner, pools = make_runner(family, 4)
    for pool in runner.pools.values():
        for tensor in pool.tensors.values():
            tensor.normal_()
    sequence = pools.sequence(prompt(1, 40))
    advance_all(runner, sequence, (22,))
    before = {name: {k: t.clone() for k, t in pool.tensors.items()} for name, pool in runner.pools.items()}
    advance(runner, [(sequence, 7)])
    page = runner.page_tokens
    for name, tensors in before.items():
        own = (
            {sequence.state_slot}
            if name == STATE
            else set(sequence.tables[name][22 // page : 28 // page + 1])
        )
        others = [slot for slot in range(runner.pools[name].slots) if slot not in own]
        for key, tensor in tensors.items():
            assert torch.equal(runner.pools[name].tensors[key][others], tensor[others]), key
            if key.endswith((".key", ".value")):
                first = sequence.tables[name][22 // page]
                assert torch.equal(
                    runner.pools[name].tensors[key][first, : 22 % page], tensor[first, : 22 % page]
                )


def test_a_fresh_row_sees_nothing_of_its_slots_past() -> None:
    """The same slots used by another sequence before: equal bit for bit to slots full of NaN."""
    for family in ("gemma3", "jamba", "lfm3", "inkling", "zaya", "deepseek_v4"):
        runner, pools = make_runner(family, 4)
        tokens, other = prompt(1, 30), prompt(2, 30)
        sequence = pools.sequence(tokens)
        clean = advance_all(runner, sequence, (5, 1, 24))
        used = dataclasses.replace(sequence, tokens=other, start=0)
        advance_all(runner, used, (30,))
        again = dataclasses.replace(sequence, start=0)
        assert torch.equal(advance_all(runner, again, (5, 1, 24)), clean)


def test_two_runners_in_one_process() -> None:
    """Steps of two models of one family, taken in turns, and the library's own model beside them."""
    pairs = [make_runner("qwen3_next", 4, seed=seed) for seed in (0, 1)]
    tokens = prompt(1, 40)
    sequences = [pools.sequence(tokens) for _, pools in pairs]
    expected = [reference("qwen3_next", tuple(tokens))]
    with torch.no_grad():
        other = build_model("qwen3_next", seed=1)
        expected.append(other(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].float())
    for n in (9, 1, 1, 14):
        for (runner, _), sequence, logits in zip(pairs, sequences, expected, strict=True):
            step = advance(runner, [(sequence, n)])[0]
            assert_equal(step, logits[sequence.start - 1])
    plain = library_model("qwen3_next")
    with torch.no_grad():
        again = plain(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].float()
    assert torch.equal(again, expected[0])


@pytest.mark.rule("X-3")
@pytest.mark.parametrize("family", ["qwen3_next", "gemma3", "inkling", "bamba"])
def test_half_precision(family: str) -> None:
    """States keep the precision that the model computes them in; a restored prefix is equal bit for bit."""
    runner, pools = make_runner(family, 8, dtype=torch.bfloat16)
    recurrent = (
        [t for name, t in runner.pools[STATE].tensors.items() if "recurrent" in name]
        if STATE in runner.pools
        else []
    )
    assert all(tensor.dtype == torch.float32 for tensor in recurrent)
    tokens = prompt(3, 40)
    whole = pools.sequence(tokens)
    advance_all(runner, whole, (BOUNDARY,))
    saved = pools.save(whole)
    uninterrupted = advance_all(runner, whole, (5, 1, 10))
    assert uninterrupted.dtype == torch.float32
    child = pools.fork(whole, tokens, BOUNDARY, saved)
    assert torch.equal(advance_all(runner, child, (5, 1, 10)), uninterrupted)


def test_a_layout_with_a_wrong_window_is_refused() -> None:
    """The trial at start sees a window that is a token too short."""
    model = build_model("gemma3")
    layout = plan_layout(model.config)
    components = tuple(
        dataclasses.replace(c, rule=Window(c.rule.lookback_tokens - 1)) if isinstance(c.rule, Window) else c
        for c in layout.components
    )
    wrong = dataclasses.replace(layout, components=components)
    with pytest.raises(UnsupportedModelError, match="other logits"):
        Runner(model, wrong, page_tokens=4, slots={c.name: 16 for c in components}, device="cpu")


def test_slots_may_depend_on_their_bytes() -> None:
    model = build_model("lfm3")
    layout = plan_layout(model.config)
    asked: dict[str, int] = {}

    def count(slot_bytes):
        asked.update(slot_bytes)
        return {name: 2**16 // size for name, size in slot_bytes.items()}

    runner = Runner(model, layout, page_tokens=4, slots=count, device="cpu")
    assert asked == {name: pool.slot_bytes for name, pool in runner.pools.items()} == runner.slot_bytes
    for name, pool in runner.pools.items():
        assert pool.slots == 2**16 // asked[name]
        assert pool.slots * pool.slot_bytes == sum(t.numel() * t.itemsize for t in pool.tensors.values())
        assert all(not tensor.any() for tensor in pool.tensors.values())


def test_load_from_a_folder(tmp_path) -> None:
    model = build_model("lfm2")
    model.save_pretrained(tmp_path)
    runner = Runner.load(
        str(tmp_path), dtype="auto", device="cpu", page_tokens=4, slots={"full": 16, "state": 2}
    )
    tokens = prompt(1, 20)
    row = Row(tokens, 0, {"full": np.arange(5, dtype=np.int32)}, 0)
    assert_equal(runner.step_all(row), reference("lfm2", tuple(tokens)))


def test_bad_arguments_are_named() -> None:
    model = build_model("deepseek_v4")
    layout = plan_layout(model.config)
    with pytest.raises(ConfigError, match=f"multiple of {layout.page_multiple}"):
        Runner(model, layout, page_tokens=layout.page_multiple + 1, slots={}, device="cpu")
    runner, pools = make_runner("lfm3", 4)
    with pytest.raises(ConfigError, match="no slot count for state"):
        Runner(build_model("lfm3"), runner.layout, page_tokens=4, slots={"full": 8, "swa": 8}, device="cpu")
    good = pools.sequence(prompt(1, 12))
    row = Row(good.tokens, 0, good.tables, good.state_slot)
    holes = {name: np.where(np.arange(3) == 1, -1, table) for name, table in good.tables.items()}
    for wrong, message in (
        (dataclasses.replace(row, tables=holes), "lacks one of the pages 0 to 3"),
        (
            dataclasses.replace(row, tables={n: t[:2] for n, t in good.tables.items()}),
            "lacks one of the pages",
        ),
        (dataclasses.replace(row, tokens=good.tokens[:0]), "no new tokens"),
        (dataclasses.replace(row, state_slot=None), "no state slot"),
        (dataclasses.replace(row, start=runner.layout.max_model_tokens), "serves at most"),
    ):
        with pytest.raises(ConfigError, match=message):
            runner.step([wrong])
    with pytest.raises(ConfigError, match="at least one row"):
        runner.step([])
    assert_equal(runner.step([row])[0], reference("lfm3", tuple(good.tokens))[-1])


@pytest.mark.parametrize(
    ("model_type", "settings", "reason"),
    [
        ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4}, "attention interface"),
        ("gptj", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8}, "attention interface"),
        ("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4}, "fails in its code"),
    ],
)
def test_a_model_that_cannot_be_packed_is_refused(model_type: str, settings: dict, reason: str) -> None:
    """Their configurations look like plain full attention; their code does something of its own."""
    config = CONFIG_MAPPING[model_type](vocab_size=512, **settings)
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UnsupportedModelError, match=reason):
        Runner(model, plan_layout(config), page_tokens=4, slots={"full": 16}, device="cpu")


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "deepseek_v3", "phi3"])
def test_a_family_beyond_the_zoo(model_type: str) -> None:
    """Families that nobody prepared: what the plan and the trial accept is right."""
    sizes = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 4, "intermediate_size": 96, "pad_token_id": 0, "bos_token_id": 1}
    sizes |= {"n_embd": 64, "n_layer": 2, "n_head": 4, "eos_token_id": 2}
    sizes |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    if model_type == "phi3":
        sizes["sliding_window"] = 8
    config = CONFIG_MAPPING[model_type](**sizes)
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(config).eval()
    tokens = prompt(1, 40)
    with torch.no_grad():
        expected = plain(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].float()
    layout = plan_layout(config)
    slots = {c.name: 24 for c in layout.components}
    runner = Runner(plain, layout, page_tokens=4, slots=slots, device="cpu")
    poison(runner)
    sequence = Pools(runner, np.random.default_rng(0)).sequence(tokens)
    assert_equal(advance_all(runner, sequence, (7, 1, 13, 1, 18)), expected)
