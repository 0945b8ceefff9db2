"""Controls: with one value wrong, the comparisons of the other files fail. One for each kind of value.

The fault is put into the pools or the rules of a whole engine, after a prompt was cached and before it is
repeated; the logits of the repeat must then be far outside the bound within which all others lie.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from engine_support import Client, layout_of, plain, random_prompt, replay_boundary, serving
from runner_support import BOUND, LARGE, SERVED, difference

from graftline.cache import PrefixCache
from graftline.components import Window
from graftline.engine import load
from graftline.engine.layouts import STATE

PROMPT = random_prompt(1, 30)
COUNT = 2


def having(*names: str) -> list[str]:
    return [family for family in SERVED if any(c.name in names for c in layout_of(family).components)]


def warm(client: Client) -> torch.Tensor:
    """The prompt is cached, and a repeat of it is right; the logits of that."""
    client.record_logits()
    client.ask(PROMPT, COUNT)
    return client.logits_of(PROMPT, COUNT)


def assert_reused_and_wrong(family: str, client: Client) -> None:
    outcome = client.ask(PROMPT, COUNT)
    assert outcome.reused == replay_boundary(PROMPT, client.engine.info.page_tokens)
    logits = torch.stack([client.ends[len(PROMPT) + i] for i in range(COUNT)])
    assert difference(logits, plain(family, [PROMPT], COUNT)[1][0]) > LARGE


@pytest.mark.parametrize("family", SERVED)
def test_untouched_values_give_the_library_s_logits(family: str) -> None:
    """What the controls differ from."""
    with serving(family, page_tokens=1) as client:
        assert difference(warm(client), plain(family, [PROMPT], COUNT)[1][0]) < BOUND


@pytest.mark.parametrize("family", having(STATE))
def test_a_zeroed_state_shows(family: str) -> None:
    with serving(family, page_tokens=1) as client:
        warm(client)
        (slot,) = client.held(PROMPT[:-1])[STATE]
        client.engine.cache.pools[STATE].zero(int(slot))
        assert_reused_and_wrong(family, client)


@pytest.mark.parametrize("component", ["full", "swa", "chunk"])
@pytest.mark.parametrize("family", having("full", "swa", "chunk"))
def test_two_swapped_pages_show(family: str, component: str) -> None:
    if component not in {plan.name for plan in layout_of(family).components}:
        pytest.skip(f"has no component '{component}'")
    with serving(family, page_tokens=1) as client:
        warm(client)
        slots = client.held(PROMPT[:-1])[component]
        swapped = slots[[0, -1]].tolist()
        for tensor in client.engine.cache.pools[component].tensors.values():
            tensor[swapped] = tensor[swapped[::-1]].clone()
        assert_reused_and_wrong(family, client)


@pytest.mark.parametrize("family", having("swa"))
def test_a_window_shortened_by_one_shows(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that keeps one token too few: the runner misses its page and says so."""

    def shortened(specs, **more):
        shorter = [
            dataclasses.replace(spec, rule=Window(spec.rule.lookback_tokens - spec_page(more)))
            if isinstance(spec.rule, Window)
            else spec
            for spec in specs
        ]
        return PrefixCache(shorter, **more)

    def spec_page(more) -> int:
        return more["page_tokens"]

    monkeypatch.setattr(load, "PrefixCache", shortened)
    with serving(family, page_tokens=1) as client:
        assert client.ask(PROMPT, COUNT).finish == "error"
