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

PROMPT, OTHER = random_prompt(1, 30), random_prompt(2, 30)
COUNT = 2
PAGED = [
    (family, plan.name) for family in SERVED for plan in layout_of(family).components if plan.name != STATE
]
STATEFUL = [family for family in SERVED if any(plan.name == STATE for plan in layout_of(family).components)]
WINDOWED = [
    family
    for family in SERVED
    if any(plan.name == "swa" for plan in layout_of(family).components)
    and layout_of(family).page_multiple == 1
]


def warm(client: Client) -> torch.Tensor:
    """The prompts are cached; the logits of a repeat of the first."""
    client.record_logits()
    for prompt in (PROMPT, OTHER):
        client.ask(prompt, COUNT)
    return client.logits_of(PROMPT, COUNT)


def assert_reused_and_wrong(family: str, client: Client) -> None:
    outcome = client.ask(PROMPT, COUNT)
    assert outcome.reused == replay_boundary(PROMPT, client.engine.info.page_tokens)
    logits = torch.stack([client.ends[len(PROMPT) + i] for i in range(COUNT)])
    assert difference(logits, plain(family, [PROMPT], COUNT)[1][0]) > LARGE


@pytest.mark.parametrize("family", SERVED)
def test_untouched_values_give_the_logits_of_the_library(family: str) -> None:
    """What the controls differ from."""
    with serving(family, page_tokens=1) as client:
        assert difference(warm(client), plain(family, [PROMPT], COUNT)[1][0]) < BOUND


@pytest.mark.parametrize("family", STATEFUL)
def test_a_zeroed_state_shows(family: str) -> None:
    with serving(family, page_tokens=1) as client:
        warm(client)
        (slot,) = client.held(PROMPT[:-1])[STATE]
        client.engine.cache.pools[STATE].zero(int(slot))
        assert_reused_and_wrong(family, client)


@pytest.mark.parametrize(("family", "component"), PAGED)
def test_a_page_swapped_with_that_of_another_prompt_shows(family: str, component: str) -> None:
    with serving(family, page_tokens=1) as client:
        warm(client)
        swapped = [int(client.held(prompt[:-1])[component][-1]) for prompt in (PROMPT, OTHER)]
        for tensor in client.engine.cache.pools[component].tensors.values():
            tensor[swapped] = tensor[swapped[::-1]].clone()
        assert_reused_and_wrong(family, client)


@pytest.mark.parametrize("family", WINDOWED)
def test_a_window_shortened_by_one_shows(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that keeps one token too few: the runner misses its page and says so, and never guesses."""

    def shortened(specs, **more):
        return PrefixCache(
            [
                dataclasses.replace(spec, rule=Window(spec.rule.lookback_tokens - 1))
                if isinstance(spec.rule, Window)
                else spec
                for spec in specs
            ],
            **more,
        )

    monkeypatch.setattr(load, "PrefixCache", shortened)
    with serving(family, page_tokens=1) as client:
        assert client.ask(PROMPT, COUNT).finish == "error"
