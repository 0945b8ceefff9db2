"""What is reused, at every length around a page; and that a kept value never changes."""

from __future__ import annotations

import hashlib

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

from graftline.engine.layouts import STATE

STATEFUL = [
    family
    for family in one_of_each_composition()
    if any(plan.name == STATE for plan in layout_of(family).components)
]


@pytest.mark.parametrize("page_tokens", [4, 16])
@pytest.mark.parametrize("family", one_of_each_composition())
def test_repeats_of_lengths_around_whole_pages(family: str, page_tokens: int) -> None:
    """Also of prompts shorter than a page, which reuse nothing and harm nothing."""
    with serving(family, page_tokens=page_tokens) as client:
        page = page_of(client)
        lengths = {1, 2, page - 1, page, page + 1, 2 * page - 1, 2 * page, 2 * page + 1, 3 * page}
        for length in sorted(lengths - {0}):
            prompt = random_prompt(length, length)
            outcomes = [client.ask(prompt, 2) for _ in range(2)]
            assert_greedy(family, [prompt, prompt], outcomes, 2)
            assert [outcome.reused for outcome in outcomes] == [0, replay_boundary(prompt, page)]


@pytest.mark.parametrize("rest", [1, 2, 3])
@pytest.mark.parametrize("family", STATEFUL)
def test_rests_shorter_than_a_convolution(family: str, rest: int) -> None:
    """The rest after a hit does not fill the convolution's window; a third request then starts there too."""
    with serving(family, page_tokens=8) as client:
        shared = random_prompt(1, 24)
        client.ask([*shared, 3], 1)
        before = fingerprint(client, shared)
        for seed in (2, 3, 4):
            prompt = shared + random_prompt(seed, rest)
            outcome = client.ask(prompt, 3)
            assert outcome.reused == 24
            assert_greedy(family, [prompt], [outcome], 3)
        assert fingerprint(client, shared) == before


@pytest.mark.rule("C-3")
@pytest.mark.rule("C-4")
@pytest.mark.parametrize("family", one_of_each_composition())
def test_what_is_kept_never_changes_while_others_build_on_it(family: str) -> None:
    with serving(family) as client:
        shared = random_prompt(1, 44)
        client.ask([*shared, 3], 1)
        before = fingerprint(client, shared)
        assert client.ask(shared + random_prompt(2, 5), 30).reused == replay_boundary(
            [*shared, 3], page_of(client)
        )
        client.ask_all([shared + random_prompt(seed, 3 * seed) for seed in range(3, 9)], 12)
        assert fingerprint(client, shared) == before


def page_of(client: Client) -> int:
    return client.engine.info.page_tokens


def fingerprint(client: Client, prompt: list[int]) -> dict[str, tuple[list[int], str]]:
    """Slots of a prompt's last boundary, and a digest of all that is in them."""
    found = {}
    for name, slots in client.held(prompt).items():
        digest = hashlib.sha256()
        for _, tensor in sorted(client.engine.cache.pools[name].tensors.items()):
            digest.update(tensor[slots.tolist()].numpy().tobytes())
        found[name] = (slots.tolist(), digest.hexdigest())
    assert all(slots for slots, _ in found.values())
    return found


def test_tenants_adapters_and_refusals_do_not_share() -> None:
    prompt = random_prompt(1, 40)
    with serving("qwen3_5") as client:
        client.ask(prompt, 2, use_cache=False)
        assert client.ask(prompt, 2, salt="a").reused == 0
        assert client.ask(prompt, 2, salt="b").reused == 0
        assert client.ask(prompt, 2, salt="a", adapter="x").reused == 0
        assert client.ask(prompt, 2).reused == 0
        for more in ({"salt": "a"}, {"salt": "b"}, {"salt": "a", "adapter": "x"}, {}):
            assert client.ask(prompt, 2, **more).reused == 36
        assert client.ask(prompt, 2, use_cache=False).reused == 0


def test_an_engine_without_prefix_cache_reuses_and_keeps_nothing() -> None:
    prompt = random_prompt(1, 40)
    with serving("qwen3_5", prefix_cache=False) as client:
        outcomes = [client.ask(prompt, 3) for _ in range(2)]
        assert_greedy("qwen3_5", [prompt, prompt], outcomes, 3)
        assert [outcome.reused for outcome in outcomes] == [0, 0]
        assert all(use.held == 0 for use in client.engine.cache.uses())


@pytest.mark.rule("C-5")
@pytest.mark.parametrize("family", STATEFUL)
def test_a_mark_lets_the_very_next_prompt_start_there(family: str) -> None:
    shared = random_prompt(1, 41)
    with serving(family) as client:
        page = page_of(client)
        client.ask(shared + random_prompt(2, 9), 2, marks=(41,))
        prompt = shared + random_prompt(3, 9)
        outcome = client.ask(prompt, 2)
        assert outcome.reused == 41 // page * page
        assert_greedy(family, [prompt], [outcome], 2)


@pytest.mark.rule("M-4")
def test_a_refusal_tells_the_component_the_tokens_and_the_reason() -> None:
    prompt = random_prompt(1, 40)
    with serving("inkling") as client:
        client.ask(prompt, 2)
        reuse = client.ask(prompt[:20] + random_prompt(2, 9), 2).reuse
        assert reuse is not None
        assert (reuse.matched_tokens, reuse.reused_tokens, reuse.lost_tokens) == (20, 0, 20)
        assert reuse.limited_by in ("swa", "state")
        assert reuse.reason in ("window not held", "no checkpoint here")
        assert reuse.boundaries["full"] == 20
        client.evict("state", 10**6)
        reuse = client.ask(prompt, 2).reuse
        assert reuse is not None
        assert (reuse.limited_by, reuse.reason, reuse.reused_tokens) == ("state", "evicted", 0)
        lost = client.engine.stats().lost_tokens
        assert lost["state", "evicted"] == 36
