"""Every served family: with the cache, greedy text is that of the library's plain forward without any cache.

Each test is one story on one engine, for pages of 1, 16 and 64 tokens (or the next size that the family
allows). Pools start full of NaN. Controls are in `test_engine_controls.py`.
"""

from __future__ import annotations

import pytest
from engine_support import (
    Client,
    assert_greedy,
    layout_of,
    one_of_each_composition,
    random_prompt,
    replay_boundary,
    serving,
)
from runner_support import SERVED

PAGES = (1, 16, 64)
LENGTHS = {1: 21, 16: 53, 64: 135}
TAIL = 5
COUNT = 3


@pytest.mark.rule("X-1")
@pytest.mark.parametrize("page_tokens", PAGES)
@pytest.mark.parametrize("family", SERVED)
def test_text_does_not_depend_on_what_is_cached(family: str, page_tokens: int) -> None:
    prompt = random_prompt(1, LENGTHS[page_tokens])
    with serving(family, page_tokens=page_tokens) as client:
        cold = ask(family, client, [prompt])[0]
        assert cold.reused == 0
        repeats(family, client, prompt)
        turn(family, client, prompt, cold.tokens)
        branches(family, client, prompt)
        evictions(family, client, prompt)
        client.assert_idle_and_whole()


def ask(family: str, client: Client, prompts: list[list[int]], count: int = COUNT):
    outcomes = client.ask_all(prompts, count)
    assert_greedy(family, prompts, outcomes, count)
    return outcomes


def repeats(family: str, client: Client, prompt: list[int]) -> None:
    """An exact repeat reuses all but the last page or less, on every composition."""
    for _ in range(2):
        (again,) = ask(family, client, [prompt])
        assert again.reused == replay_boundary(prompt, client.engine.info.page_tokens)


def turn(family: str, client: Client, prompt: list[int], answer: list[int]) -> None:
    """A next turn reuses everything up to the last boundary that was computed (rules C-6, C-7)."""
    page, computed = client.engine.info.page_tokens, len(prompt) + len(answer) - 1
    (reply,) = ask(family, client, [prompt + answer + random_prompt(2, TAIL)])
    assert reply.reused == computed // page * page


def branches(family: str, client: Client, prompt: list[int]) -> None:
    """At every page boundary: the first to leave the path makes it a boundary, the next starts there."""
    page = client.engine.info.page_tokens
    places = range(page, len(prompt), page)
    for seed in (3, 4):
        outcomes = ask(family, client, [branch(prompt, place, seed) for place in places])
    assert [outcome.reused for outcome in outcomes] == list(places)


def branch(prompt: list[int], place: int, seed: int) -> list[int]:
    """The prompt up to `place`, then a token unlike its own and that of another seed, then more of them."""
    tail = random_prompt(1000 * seed + place, len(prompt) + TAIL - place)
    return [*prompt[:place], 3 + (prompt[place] + seed) % 497, *tail[1:]]


def evictions(family: str, client: Client, prompt: list[int]) -> None:
    """Each component in turn loses a few values, then all; a repeat heals it, and the next one hits again."""
    page = client.engine.info.page_tokens
    replay = replay_boundary(prompt, page)
    for component in layout_of(family).components:
        client.evict(component.name, 3)
        ask(family, client, [prompt])
        client.evict(component.name, 10**6)
        (healing,) = ask(family, client, [prompt])
        needs_pages = component.rule.first_page(replay // page, page) < replay // page
        assert (healing.reused < replay) == needs_pages  # at a seam between chunks nothing is needed
        (healed,) = ask(family, client, [prompt])
        assert healed.reused == replay


@pytest.mark.rule("X-5")
@pytest.mark.parametrize("page_tokens", PAGES)
@pytest.mark.parametrize("family", SERVED)
def test_text_survives_preemption(family: str, page_tokens: int) -> None:
    """Two texts that fit alone and not together: the newer one gives way and is computed again."""
    layout = layout_of(family)
    page = max(page_tokens, layout.page_multiple)
    length, count, tight = {1: (14, 10, 34), 8: (13, 12, 5), 16: (13, 22, 4), 64: (61, 7, 3)}[page]
    slots = {"full": tight, "swa": max(tight, 40 // page), "chunk": max(tight, 40 // page), "state": 5}
    prompts = [random_prompt(seed, length) for seed in (6, 7)]
    with serving(family, page_tokens=page, slots=slots, chunk_tokens=8) as client:
        assert_greedy(family, prompts, client.ask_all(prompts, count), count)
        if any(component.rule.prefix_closed for component in layout.components):
            assert client.engine.stats().preemptions > 0
        client.assert_idle_and_whole()


@pytest.mark.parametrize("family", one_of_each_composition())
def test_twelve_turns_reuse_everything_before_them(family: str) -> None:
    with serving(family, page_tokens=8) as client:
        page, history, computed = client.engine.info.page_tokens, [], 0
        for number in range(12):
            history = history + random_prompt(20 + number, 7)
            (reply,) = ask(family, client, [history], 5)
            assert reply.reused == computed // page * page, f"turn {number}"
            computed = len(history) + len(reply.tokens) - 1
            history = history + reply.tokens


def test_a_shared_prefix_of_1500_tokens_is_reused_by_the_third_request_at_the_latest() -> None:
    """Full attention and gated delta rule, unlike questions after one long text, none of them repeated."""
    shared = random_prompt(30, 1500)
    with serving("qwen3_5", page_tokens=16, chunk_tokens=512, max_batched_tokens=1024) as client:
        asked = [shared + random_prompt(31 + number, 20) for number in range(5)]
        outcomes = [client.ask(prompt, 2) for prompt in asked]
        assert_greedy("qwen3_5", asked, outcomes, 2)
        assert [outcome.reused for outcome in outcomes[2:]] == [1488] * 3
