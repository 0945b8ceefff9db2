"""Requests that come at once with the same prefix compute it once (rule X-7)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from engine_support import (
    Client,
    Outcome,
    Prompt,
    assert_greedy,
    layout_of,
    one_of_each_composition,
    random_prompt,
    replay_boundary,
    serving,
)

FAMILIES = one_of_each_composition()
CLOSED = [
    family for family in FAMILIES if all(plan.rule.prefix_closed for plan in layout_of(family).components)
]


class Steps:
    """How many tokens the model has computed, and a gate before each step."""

    def __init__(self, client: Client) -> None:
        self.tokens = 0
        self.rows: list[tuple[int, int]] = []
        self._gate: threading.Semaphore | None = None
        self._done = threading.Semaphore(0)
        step = client.engine._runner.step

        def counting(rows: Sequence[Any]) -> Any:
            if self._gate is not None:
                self._gate.acquire()
            self.tokens += sum(len(row.tokens) for row in rows)
            self.rows += [(row.start, row.end) for row in rows]
            logits = step(rows)
            self._done.release()
            return logits

        client.engine._runner.step = counting

    def hold(self) -> None:
        """From now on a step waits for `let_go`."""
        self._gate = threading.Semaphore(0)

    def let_go(self, steps: int | None = None) -> None:
        """Lets some steps go, or all."""
        gate = self._gate
        assert gate is not None
        if steps is None:
            self._gate = None
        gate.release(steps or 1)


def prompt_tokens_computed(prompts: Sequence[Prompt], outcomes: Sequence[Outcome]) -> int:
    return sum(len(p) - outcome.reused for p, outcome in zip(prompts, outcomes, strict=True))


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("page_tokens", [1, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_eight_equal_prompts_at_once_compute_one(family: str, page_tokens: int) -> None:
    with serving(family, page_tokens=page_tokens) as client:
        page, prompt, count = client.engine.info.page_tokens, random_prompt(1, 75), 3
        steps = Steps(client)
        outcomes = client.ask_all([prompt] * 8, count)
        assert_greedy(family, [prompt] * 8, outcomes, count)
        replay = replay_boundary(prompt, page)
        assert sorted(outcome.reused for outcome in outcomes) == [0] + [replay] * 7
        assert steps.tokens == replay + 8 * (len(prompt) - replay) + 8 * (count - 1)
        stats = client.engine.stats()
        assert (stats.coalesced_requests, stats.coalesced_tokens) == (7, 7 * replay)
        assert stats.computed_tokens == replay + 8 * (len(prompt) - replay)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_common_prefix_is_computed_once_though_no_prompt_ends_there(family: str) -> None:
    """The leader gets a stop of its own at the boundary, off the grid, inside a chunk that was planned."""
    shared = random_prompt(1, 41)
    prompts = [shared + random_prompt(2 + seed, 12) for seed in range(5)]
    with serving(family) as client:
        steps, join = Steps(client), 41 // client.engine.info.page_tokens * client.engine.info.page_tokens
        outcomes = client.ask_all(prompts, 3)
        assert_greedy(family, prompts, outcomes, 3)
        assert [outcome.reused for outcome in outcomes] == [0] + [join] * 4
        assert [outcome.reuse.coalesced_tokens for outcome in outcomes if outcome.reuse] == [0] + [join] * 4
        assert steps.tokens == join + 5 * (53 - join) + 5 * 2
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_follower_of_a_follower(family: str) -> None:
    """a; a b; a b c; a b c d at once: each part is computed once."""
    whole = random_prompt(1, 96)
    prompts = [[*whole[: 24 * parts], 2 + parts] for parts in range(1, 5)]
    with serving(family) as client:
        steps = Steps(client)
        outcomes = client.ask_all(prompts, 2)
        for prompt, outcome in zip(prompts, outcomes, strict=True):
            assert_greedy(family, [prompt], [outcome], 2)
        assert [outcome.reused for outcome in outcomes] == [0, 24, 48, 72]
        assert steps.tokens == 4 * 24 + 4 + 4
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("end", ["abort", "finish"])
@pytest.mark.parametrize("family", FAMILIES)
def test_followers_go_on_when_the_leader_ends_early(family: str, end: str) -> None:
    """The next of them leads; what the one before had kept by then is used."""
    prompt = random_prompt(1, 61)
    with serving(family, chunk_tokens=8, max_batched_tokens=16) as client:
        steps = Steps(client)
        steps.hold()
        with client.engine._changed:
            pending = [client.submit(prompt, 3) for _ in range(4)]
        steps.let_go(2)
        steps._done.acquire()
        steps._done.acquire()
        getattr(client.engine, end)(pending[0].ident)
        steps.let_go()
        assert pending[0].wait().finish == {"abort": "abort", "finish": "stop"}[end]
        outcomes = [request.wait() for request in pending[1:]]
        assert_greedy(family, [prompt] * 3, outcomes, 3)
        replay = replay_boundary(prompt, client.engine.info.page_tokens)
        assert [outcome.reused for outcome in outcomes[1:]] == [replay] * 2
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("family", FAMILIES)
def test_followers_hold_nothing_and_others_pass_them(family: str) -> None:
    prompt, other = random_prompt(1, 61), random_prompt(2, 13)
    with serving(family, chunk_tokens=8, max_batched_tokens=16) as client:
        steps = Steps(client)
        steps.hold()
        with client.engine._changed:
            pending = [client.submit(prompt, 2) for _ in range(3)]
            passing = client.submit(other, 2)
        steps.let_go(1)
        steps._done.acquire()
        with client.engine._changed:
            stats = client.engine.stats()
            assert (stats.running, stats.waiting) == (2, 2)
            assert client.engine.cache.open_requests == 2
        steps.let_go()
        assert_greedy(family, [other], [passing.wait()], 2)
        assert_greedy(family, [prompt] * 3, [request.wait() for request in pending], 2)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "inkling", "llama"])
def test_a_crowd_of_sharers_in_pools_too_small_says_the_same(family: str) -> None:
    """Leaders are preempted, checkpoints find no slot, boundaries are evicted before a follower comes."""
    shared = random_prompt(1, 30)
    prompts = [
        shared[: 10 + 4 * (seed % 6)] + random_prompt(2 + seed, 30 - 4 * (seed % 6)) for seed in range(12)
    ]
    slots = {"full": 26, "swa": 40, "state": 8}
    with serving(family, slots=slots, chunk_tokens=8, max_batched_tokens=24) as client:
        outcomes = client.ask_all(prompts, 20)
        assert_greedy(family, prompts, outcomes, 20)
        assert client.engine.stats().preemptions > 0
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
def test_only_the_same_namespace_and_only_the_cache_is_waited_for() -> None:
    prompt = random_prompt(1, 41)
    with serving("qwen3_5") as client:
        with client.engine._changed:
            pending = [
                client.submit(prompt, 2, **more)
                for more in ({}, {"salt": "a"}, {"adapter": "a"}, {"use_cache": False})
            ]
        outcomes = [request.wait() for request in pending]
        assert [outcome.reused for outcome in outcomes] == [0] * 4
        assert client.engine.stats().coalesced_requests == 0


@pytest.mark.rule("X-7")
def test_it_can_be_switched_off() -> None:
    prompt = random_prompt(1, 41)
    with serving("qwen3_5", coalesce=False) as client:
        outcomes = client.ask_all([prompt] * 3, 2)
        assert_greedy("qwen3_5", [prompt] * 3, outcomes, 2)
        assert client.engine.stats().coalesced_requests == 0
        assert prompt_tokens_computed([prompt] * 3, outcomes) > 2 * 40


@pytest.mark.rule("X-7")
@pytest.mark.parametrize("family", CLOSED)
def test_what_a_leader_has_computed_already_is_shared_where_that_is_enough(family: str) -> None:
    """Prefix-closed pages are good at any boundary: the second request comes when the first is past it."""
    shared = random_prompt(1, 40)
    first, second = shared + random_prompt(2, 60), shared + random_prompt(3, 9)
    with serving(family, chunk_tokens=16, max_batched_tokens=32) as client:
        steps = Steps(client)
        steps.hold()
        leader = client.submit(first, 2)
        steps.let_go(3)
        for _ in range(3):
            steps._done.acquire()
        follower = client.submit(second, 2)
        steps.let_go()
        outcomes = [leader.wait(), follower.wait()]
        assert outcomes[1].reused == 40
        for prompt, outcome in zip((first, second), outcomes, strict=True):
            assert_greedy(family, [prompt], [outcome], 2)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-7")
@pytest.mark.rule("C-8")
@pytest.mark.parametrize("family", ["qwen3_5", "inkling", "mamba"])
def test_followers_go_on_when_no_checkpoint_could_be_kept(family: str) -> None:
    """Others hold the states that the leader would need to keep one: each follower waits once at most."""
    others, prompt = [random_prompt(seed, 9) for seed in range(2, 5)], random_prompt(1, 41)
    with serving(family, slots={"full": 300, "swa": 300, "state": 5}, chunk_tokens=8) as client:
        with client.engine._changed:
            pending = [client.submit(other, 60) for other in others]
            waiting = [client.submit(prompt, 3) for _ in range(4)]
        assert_greedy(family, [prompt] * 4, [request.wait() for request in waiting], 3)
        assert_greedy(family, others, [request.wait() for request in pending], 60)
        assert client.engine.stats().skipped_checkpoints > 0
        client.assert_idle_and_whole()
