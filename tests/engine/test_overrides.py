"""Corrections of single families: wrong upstream, right here, and the library stays as it is.

Where a test shows the library's fault, it also tells when the correction is no longer needed.
"""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest
import torch
from runner_support import LARGE, Pools, advance_all, assert_equal, difference, make_runner, prompt, reference
from transformers import AutoModelForCausalLM, DynamicCache, PretrainedConfig

from graftline.engine.layouts import plan_layout
from graftline.engine.overrides.mamba1 import scan_from
from graftline.engine.runner import Runner
from graftline.zoo import build_config, build_model
from graftline.zoo.initialise import initialise

MAMBA1 = ("jamba", "mamba", "falcon_mamba", "zamba")
PATCHED = (
    *MAMBA1,
    "nemotron_h",
    "zamba2",
    "recurrent_gemma",
    "minimax_lin_first",
    "qwen4_exp",
    "inkling",
    "inkling2",
)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def make_model(config: PretrainedConfig) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_config(config).eval()
    initialise(model, 0)
    return model


def runner_of(config: PretrainedConfig) -> tuple[Runner, Pools]:
    layout = plan_layout(config)
    slots = {c.name: 12 for c in layout.components}
    runner = Runner(make_model(config), layout, page_tokens=8, slots=slots, device="cpu")
    return runner, Pools(runner, np.random.default_rng(0))


def library_chunks(model: torch.nn.Module, tokens: np.ndarray, chunks: tuple[int, ...]) -> torch.Tensor:
    """Logits of the library's own model with its own cache, run in chunks."""
    cache = DynamicCache(config=model.config)
    names = inspect.signature(model.forward).parameters
    name = "past_key_values" if "past_key_values" in names else "cache_params"
    parts, start = [], 0
    for n in chunks:
        arguments = {
            "input_ids": torch.from_numpy(tokens[None, start : start + n]),
            name: cache,
            "use_cache": True,
        }
        if "position_ids" in names:
            arguments["position_ids"] = torch.arange(start, start + n)[None]
        parts.append(model(**arguments).logits[0].float())
        start += n
    return torch.cat(parts)


def our_chunks(family: str, tokens: np.ndarray, chunks: tuple[int, ...]) -> torch.Tensor:
    runner, pools = make_runner(family, 4)
    return advance_all(runner, pools.sequence(tokens), chunks)


@pytest.mark.parametrize(
    ("family", "chunks"),
    [
        *((family, (20, 12)) for family in MAMBA1),
        ("recurrent_gemma", (20, 12)),
    ],
)
def test_the_library_is_wrong_where_the_runner_is_right(family: str, chunks: tuple[int, ...]) -> None:
    tokens = prompt(4, 32)
    expected = reference(family, tuple(tokens))
    assert difference(library_chunks(build_model(family), tokens, chunks), expected) > LARGE
    assert_equal(our_chunks(family, tokens, chunks), expected)


@pytest.mark.parametrize("family", ["nemotron_h", "zamba2"])
def test_single_tokens_clamp_dt_like_chunks(family: str) -> None:
    """With a lower limit that many steps reach: upstream single tokens go below it, here they do not."""
    config = build_config(family)
    config.time_step_min = 1.0
    tokens, single = prompt(4, 24), (1,) * 24
    expected = make_model(config)(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].float()
    upstream = library_chunks(make_model(config), tokens, single)
    assert difference(upstream, expected) > LARGE
    runner, pools = runner_of(config)
    assert_equal(advance_all(runner, pools.sequence(tokens), single), expected)


@pytest.mark.parametrize("family", MAMBA1)
def test_a_scan_in_two_parts_is_the_librarys_scan(family: str) -> None:
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    rows, channels, states, tokens, cut = 2, 6, 4, 11, 5
    x, dt, gate = (
        normal(rows, channels, tokens),
        normal(rows, channels, tokens),
        normal(rows, channels, tokens),
    )
    a, b, c = -normal(channels, states).abs(), normal(rows, states, tokens), normal(rows, states, tokens)
    options = {"D": normal(channels), "delta_bias": normal(channels), "delta_softplus": True}
    whole, last = module.mamba_selective_scan(x, dt, a, b, c, z=gate, return_last_state=True, **options)
    parts, state = [], torch.zeros(rows, channels, states)
    for section in (slice(0, cut), slice(cut, tokens)):
        out, state = scan_from(
            state,
            x[..., section],
            dt[..., section],
            a,
            b[..., section],
            c[..., section],
            z=gate[..., section],
            return_last_state=True,
            **options,
        )
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=-1), whole)
    torch.testing.assert_close(state, last)


@pytest.mark.parametrize("family", PATCHED)
def test_the_library_is_left_as_it_was(family: str) -> None:
    """No class, function or module of the library changes, so a model beside the runner's is not touched."""
    plain = build_model(family)
    tokens = torch.from_numpy(prompt(4, 24))[None]
    before = plain(input_ids=tokens, use_cache=False).logits
    modules = {importlib.import_module(type(m).__module__) for m in plain.modules()}
    modules = {module for module in modules if module.__name__.startswith("transformers.models.")}
    names = {module: dict(vars(module)) for module in modules}
    forwards = {type(m): type(m).forward for m in plain.modules()}
    make_runner(family, 4)
    assert {module: dict(vars(module)) for module in modules} == names
    assert all(cls.forward is forward for cls, forward in forwards.items())
    assert plain.config._attn_implementation != "graftline_paged"
    assert torch.equal(plain(input_ids=tokens, use_cache=False).logits, before)


def test_recurrent_gemma_keeps_requests_apart() -> None:
    """A one-token prompt after another request starts from nothing, unlike upstream."""
    runner, pools = make_runner("recurrent_gemma", 4)
    advance_all(runner, pools.sequence(prompt(1, 20)), (20,))
    tokens = prompt(2, 6)
    assert_equal(
        advance_all(runner, pools.sequence(tokens), (1,) * 6), reference("recurrent_gemma", tuple(tokens))
    )


def test_qwen4_exp_with_n_gram_features() -> None:
    """Hashed n-grams keep token ids as a state: integers, in the same slot as the other states."""
    settings = build_config("qwen4_exp").to_dict()
    settings |= {
        "ple_layer_ids": [1, 3],
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 101,
        "ple_embed_dim": 32,
    }
    config = type(build_config("qwen4_exp"))(**settings)
    runner, pools = runner_of(config)
    assert runner.pools["state"].tensors["0.conv2"].dtype == torch.int64
    tokens = prompt(4, 40)
    expected = make_model(config)(input_ids=torch.from_numpy(tokens)[None], use_cache=False).logits[0].float()
    assert_equal(advance_all(runner, pools.sequence(tokens), (1, 7, 1, 1, 30)), expected)
