"""Many requests at once: places, order, preemption, ends, and how prompts are cut."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict

import numpy as np
import pytest
from engine_support import (
    Client,
    assert_greedy,
    layout_of,
    one_of_each_composition,
    random_prompt,
    serving,
)

from graftline.engine import checks
from graftline.engine.api import GenerationRequest, SamplingParams
from graftline.engine.sizes import slots_needed
from graftline.errors import CapacityError, ConfigError, EngineClosedError

MIXED = ["gemma3", "qwen3_5", "inkling", "mamba"]


def greedy(count: int, **more) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0, ignore_eos=True, **more)


# -- places ---------------------------------------------------------------------------------------------


@pytest.mark.rule("X-5")
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "inkling"])
def test_a_crowd_in_a_small_pool_preempts_and_says_the_same(family: str) -> None:
    prompts = [random_prompt(seed, 20) for seed in range(6)]
    slots = {"full": 26, "swa": 40, "state": 16}
    with serving(family, slots=slots) as client:
        assert_greedy(family, prompts, client.ask_all(prompts, 24), 24)
        assert client.engine.stats().preemptions > 0
        client.assert_idle_and_whole()


@pytest.mark.rule("X-6")
@pytest.mark.parametrize("page_tokens", [1, 4])
@pytest.mark.parametrize("family", one_of_each_composition())
def test_the_largest_request_that_is_taken_ends_in_the_smallest_pools(family: str, page_tokens: int) -> None:
    """Not a slot more than one sequence needs: cold, over a branch point and a mark, and as a repeat."""
    layout, count, total = layout_of(family), 9, 72
    page = max(page_tokens, layout.page_multiple)
    slots = {c.name: slots_needed(c.rule, page, total, 4) for c in layout.components}
    first = random_prompt(1, total - count)
    second = first[:24] + random_prompt(2, total - count - 24)
    with serving(family, page_tokens=page, slots=slots, chunk_tokens=4, max_model_tokens=total) as client:
        for prompt in (first, second, first[:24] + random_prompt(3, total - count - 24), second):
            assert_greedy(family, [prompt], [client.ask(prompt, count, marks=(12, 40))], count)
            client.assert_idle_and_whole()
        with pytest.raises(ConfigError, match="more than 72"):
            client.submit(first, count + 1)


@pytest.mark.rule("X-6")
def test_what_can_never_fit_is_refused_at_once() -> None:
    with serving("qwen3_5", slots={"full": 10, "state": 8}, max_model_tokens=200) as client:
        for length, count, message in (
            (100, 4, "104"),
            (36, 5, "more than 40"),
            (0, 4, "empty"),
            (4, 0, "max"),
        ):
            with pytest.raises(ConfigError, match=message):
                client.submit(random_prompt(1, length), count)
        with pytest.raises(ConfigError, match="vocabulary"):
            client.submit([5, 512], 4)
        with pytest.raises(ConfigError, match="mark 9"):
            client.submit([5, 6], 4, marks=(9,))
        assert client.engine.stats().waiting == 0
        assert client.ask(random_prompt(1, 30), 4).finish == "length"


def test_negative_token_ids_are_refused_by_name() -> None:
    with serving("llama") as client, pytest.raises(ConfigError, match="-1"):
        client.engine.submit(GenerationRequest(np.array([3, -1]), greedy(2)), print)


@pytest.mark.rule("X-6")
def test_a_request_without_room_ends_with_an_error_and_the_next_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the estimate ever be too low, nothing hangs."""
    monkeypatch.setattr(checks, "slots_needed", lambda *_: 0)
    with serving("qwen3_5", slots={"full": 5, "state": 8}) as client:
        client.engine.info = dataclasses.replace(client.engine.info, max_model_tokens=1000)
        stuck = client.submit(random_prompt(1, 60), 4)
        fits = client.submit(random_prompt(2, 10), 4)
        assert "cannot hold" in stuck.wait().error
        assert_greedy("qwen3_5", [random_prompt(2, 10)], [fits.wait()], 4)
        client.assert_idle_and_whole()


@pytest.mark.parametrize("family", ["qwen3_5", "inkling"])
def test_as_many_running_as_there_are_states_leaves_checkpoints_out(family: str) -> None:
    prompts = [random_prompt(seed, 21) for seed in range(8)]
    with serving(family, slots={"full": 200, "swa": 200, "state": 4}) as client:
        assert_greedy(family, prompts, client.ask_all(prompts, 9), 9)
        assert client.engine.stats().skipped_checkpoints > 0
        assert client.engine.stats().preemptions == 0
        client.assert_idle_and_whole()


@pytest.mark.parametrize("family", ["qwen3_5", "mamba", "lfm2"])
def test_states_recycled_from_others_are_never_read(family: str) -> None:
    prompts = [random_prompt(seed, 13) for seed in range(12)]
    with serving(family, slots={"full": 400, "state": 5}) as client:
        for _ in range(2):
            assert_greedy(family, prompts, client.ask_all(prompts, 3), 3)


def test_idle_conversations_give_way_to_a_new_one() -> None:
    with serving("qwen3_5", slots={"full": 40, "state": 12}) as client:
        for number in range(20):
            prompt = random_prompt(number, 50)
            outcome = client.ask(prompt, 4, session_id=f"session {number}")
            assert_greedy("qwen3_5", [prompt], [outcome], 4)
        assert client.engine.stats().evicted_slots["full"] > 0
        client.assert_idle_and_whole()


def test_tokens_that_were_not_used_are_not_kept_from_others() -> None:
    """A request that may generate for long and stops early holds nothing; two such run side by side."""
    with serving("qwen3_5", slots={"full": 45, "state": 12}) as client:
        early = client.submit(random_prompt(1, 20), 150)
        early.wait_for_token()
        client.engine.finish(early.ident)
        assert early.wait().finish == "stop"
        client.assert_idle_and_whole()
        prompts = [random_prompt(seed, 20) for seed in (2, 3)]
        stops = [greedy(150, stop_token_ids=tuple(range(512)))] * 2
        with client.engine._changed:
            pending = [client.submit(p, sampling=s) for p, s in zip(prompts, stops, strict=True)]
        assert [request.wait().finish for request in pending] == ["stop", "stop"]
        assert client.engine.stats().preemptions == 0


# -- order ----------------------------------------------------------------------------------------------


def test_larger_priority_runs_first_then_the_older() -> None:
    ended: list[str] = []

    def noting(name: str):
        return lambda event: ended.append(name) if event.finish_reason else None

    with serving("llama", max_running=1) as client:
        with client.engine._changed:
            pending = [
                client.submit(random_prompt(1, 9), 3, priority=priority, also=noting(name))
                for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1))
            ]
        for request in pending:
            request.wait()
    assert ended == ["b", "d", "a", "c", "e"]


def test_a_full_queue_refuses_and_takes_again_later() -> None:
    with serving("llama", max_waiting=2) as client:
        with client.engine._changed:
            pending = [client.submit(random_prompt(seed, 9), 3) for seed in (1, 2)]
            with pytest.raises(CapacityError, match="queue"):
                client.submit(random_prompt(3, 9), 3)
        assert [request.wait().finish for request in pending] == ["length"] * 2
        assert client.ask(random_prompt(3, 9), 3).finish == "length"


def test_events_come_in_order_and_end_once() -> None:
    with serving("qwen3_5") as client:
        prompt = random_prompt(1, 21)
        told = client.ask(prompt, 5)
        assert [event.finish_reason for event in told.events] == [None] * 4 + ["length"]
        assert [event.reuse is not None for event in told.events] == [True] + [False] * 4
        assert all(event.token is not None for event in told.events)

        again = client.ask(prompt, sampling=greedy(5, stop_token_ids=(told.tokens[2],)))
        first = told.tokens.index(told.tokens[2])
        assert again.tokens == told.tokens[:first]
        assert (again.events[-1].token, again.finish) == (None, "stop")
        assert client.engine.stats().requests == {"length": 1, "stop": 1}
        assert client.engine.stats().generated_tokens == 5 + first


def test_log_probabilities_come_when_asked_for() -> None:
    with serving("llama") as client:
        told = client.ask(random_prompt(1, 9), sampling=greedy(3, logprobs=4))
        for event in told.events:
            assert event.top_logprobs[0] == (event.token, event.logprob)
            assert len(event.top_logprobs) == 4


# -- cuts -----------------------------------------------------------------------------------------------


def cuts(
    client: Client, prompts: list[list[int]], use_cache: bool = False
) -> dict[int, list[tuple[int, int]]]:
    """Where each prompt is cut when all of them run together, by its first token."""
    step, seen = client.engine._runner.step, defaultdict(list)

    def recording(rows):
        for row in rows:
            for prompt in prompts:
                if row.end <= len(prompt) and prompt[row.start : row.end] == row.tokens.tolist():
                    seen[prompt[0]].append((row.start, row.end))
        return step(rows)

    client.engine._runner.step = recording
    client.ask_all(prompts, 3, use_cache=use_cache)
    client.engine._runner.step = step
    return dict(seen)


@pytest.mark.rule("X-2")
@pytest.mark.parametrize("most", [24, 30, 500])
def test_how_a_prompt_is_cut_never_depends_on_what_else_runs(most: int) -> None:
    prompts = [random_prompt(seed, length) for seed, length in enumerate((70, 33, 16, 17, 50, 5, 64, 41))]
    with serving("llama", max_batched_tokens=most) as client:
        together = cuts(client, prompts)
        alone = {prompt[0]: cuts(client, [prompt])[prompt[0]] for prompt in prompts}
    assert together == alone
    assert together[prompts[0][0]] == [(0, 16), (16, 32), (32, 48), (48, 64), (64, 68), (68, 70)]
    assert together[prompts[2][0]] == [(0, 12), (12, 16)]


@pytest.mark.rule("C-14", "X-2")
@pytest.mark.parametrize("family", [*MIXED, "llama", "deepseek_v4"])
def test_a_turn_of_a_conversation_is_one_step_where_no_state_is_copied(family: str) -> None:
    with serving(family) as client:
        page = client.engine.info.page_tokens
        prompt = random_prompt(1, 4 * page + 1)
        answer = client.ask(prompt, page + 2).tokens
        turn = [*prompt, *answer, *random_prompt(2, page + 2)]
        seen = cuts(client, [turn], use_cache=True)[turn[0]]
        start = (len(prompt) + page + 1) // page * page
        grid = 16
        if any(plan.rule.holds_state for plan in layout_of(family).components):
            assert len(seen) > 1
        else:
            edges = [start, *range(start // grid * grid + grid, len(turn), grid), len(turn)]
            assert seen == list(itertools.pairwise(edges))
        again = client.ask(turn, 3)
        assert again.reused == (len(turn) - 1) // page * page
        assert_greedy(family, [turn], [again], 3)


def test_the_budget_of_a_step_is_kept() -> None:
    prompts = [random_prompt(seed, 60) for seed in range(10)]
    with serving("llama", max_batched_tokens=24) as client:
        step, sizes = client.engine._runner.step, []

        def counting(rows):
            sizes.append(sum(len(row.tokens) for row in rows))
            return step(rows)

        client.engine._runner.step = counting
        assert_greedy("llama", prompts, client.ask_all(prompts, 3), 3)
        assert max(sizes) <= 24


def test_sixteen_at_once_get_their_own_answers() -> None:
    prompts = [random_prompt(seed, 37) for seed in range(16)]
    with serving("inkling", max_running=16) as client:
        assert_greedy("inkling", prompts, client.ask_all(prompts, 6), 6)
        assert_greedy("inkling", prompts, client.ask_all(prompts[::-1], 6)[::-1], 6)


@pytest.mark.parametrize("family", MIXED)
def test_one_token_left_after_a_hit_among_generating_ones(family: str) -> None:
    """A prompt of whole pages and one token: its rest looks like a step of generation."""
    prompt, others = random_prompt(1, 33), [random_prompt(seed, 33) for seed in (2, 3)]
    with serving(family) as client:
        client.ask(prompt, 2)
        outcomes = client.ask_all([*others, prompt], 5)
        assert_greedy(family, [*others, prompt], outcomes, 5)
        assert outcomes[2].reused == 32


@pytest.mark.parametrize("family", MIXED)
def test_seeded_text_is_the_same_alone_in_a_crowd_and_after_preemption(family: str) -> None:
    sampling = SamplingParams(max_tokens=20, temperature=1.0, seed=7, ignore_eos=True)
    prompts = [random_prompt(seed, 20) for seed in range(4)]
    with serving(family) as client:
        alone = client.ask(prompts[3], sampling=sampling).tokens
        with client.engine._changed:
            pending = [client.submit(prompt, sampling=sampling) for prompt in prompts]
        assert [request.wait().tokens for request in pending][3] == alone
    with serving(family, slots={"full": 20, "swa": 40, "state": 16}) as client:
        with client.engine._changed:
            pending = [client.submit(prompt, sampling=sampling) for prompt in prompts]
        assert [request.wait().tokens for request in pending][3] == alone
        assert client.engine.stats().preemptions > 0 or family == "mamba"


# -- ends -----------------------------------------------------------------------------------------------


def assert_healthy(family: str, client: Client) -> None:
    """Nothing is left behind, and text is as it should be."""
    client.assert_idle_and_whole()
    prompts = [random_prompt(1, 70), random_prompt(2, 70)]
    assert_greedy(family, prompts, client.ask_all(prompts, 3), 3)
    client.assert_idle_and_whole()


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("family", MIXED)
def test_abort_while_waiting(family: str) -> None:
    with serving(family) as client:
        with client.engine._changed:
            pending = client.submit(random_prompt(1, 70), 5)
            client.engine.abort(pending.ident)
        outcome = pending.wait()
        assert (outcome.finish, outcome.tokens, outcome.reuse) == ("abort", [], None)
        assert_healthy(family, client)


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("after_steps", [1, 2, 4, 5])
@pytest.mark.parametrize("family", MIXED)
def test_abort_while_the_prompt_is_computed(family: str, after_steps: int) -> None:
    with serving(family) as client:
        step, steps = client.engine._runner.step, []
        prompt = random_prompt(1, 70)

        def aborting(rows):
            steps.append(rows)
            if len(steps) == after_steps:
                client.engine.abort(pending.ident)
            return step(rows)

        client.engine._runner.step = aborting
        with client.engine._changed:
            pending = client.submit(prompt, 5)
        outcome = pending.wait()
        client.engine._runner.step = step
        assert (outcome.finish, outcome.tokens) == ("abort", [])
        assert len(steps) == after_steps
        assert_healthy(family, client)


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("place", [1, 3, 5])
@pytest.mark.parametrize("family", MIXED)
def test_abort_from_the_callback(family: str, place: int) -> None:
    """After a token; with the last one it comes too late, and there is no second end."""
    with serving(family) as client:
        told = []

        def abort(event) -> None:
            told.append(event)
            if len(told) == place:
                client.engine.abort(pending.ident)

        with client.engine._changed:
            pending = client.submit(random_prompt(1, 70), 5, also=abort)
        outcome = pending.wait()
        assert outcome.finish == ("abort" if place < 5 else "length")
        assert len(outcome.tokens) == place
        assert_healthy(family, client)
        assert len(told) == len(outcome.events)


@pytest.mark.rule("C-2")
@pytest.mark.parametrize("family", ["qwen3_5", "inkling"])
def test_abort_after_preemption(family: str) -> None:
    with serving(family, slots={"full": 26, "swa": 60, "state": 16}) as client:
        step = client.engine._runner.step

        def aborting(rows):
            if client.engine._scheduler.preemptions:
                client.engine.abort(pending[1].ident)
            return step(rows)

        client.engine._runner.step = aborting
        with client.engine._changed:
            pending = [client.submit(random_prompt(seed, 30), 30) for seed in (1, 2)]
        assert [request.wait().finish for request in pending] == ["length", "abort"]
        client.engine._runner.step = step
        assert_healthy(family, client)


def test_an_abort_whose_callback_aborts_others() -> None:
    with serving("qwen3_5") as client:

        def abort_all(event) -> None:
            if event.finish_reason:
                for request in pending:
                    client.engine.abort(request.ident)

        with client.engine._changed:
            pending = [client.submit(random_prompt(seed, 9), 50, also=abort_all) for seed in range(6)]
            client.engine.abort(pending[2].ident)
        assert [request.wait().finish for request in pending] == ["abort"] * 6
        assert_healthy("qwen3_5", client)


def test_aborting_unknown_and_ended_requests_changes_nothing() -> None:
    with serving("llama") as client:
        pending = client.submit(random_prompt(1, 9), 2)
        pending.wait()
        for ident in (pending.ident, 999, -1):
            client.engine.abort(ident)
        assert_healthy("llama", client)


@pytest.mark.parametrize("family", MIXED)
def test_finish_keeps_what_was_computed(family: str) -> None:
    with serving(family) as client:
        prompt = random_prompt(1, 30)
        told = []

        def finish(event) -> None:
            told.append(event)
            if len(told) == 6:
                client.engine.finish(pending.ident)

        with client.engine._changed:
            pending = client.submit(prompt, 50, also=finish)
        outcome = pending.wait()
        assert (outcome.finish, len(outcome.tokens)) == ("stop", 6)
        turn = prompt + outcome.tokens + random_prompt(2, 6)
        reply = client.ask(turn, 3)
        assert reply.reused == (len(prompt) + 5) // 4 * 4
        assert_greedy(family, [turn], [reply], 3)


def test_a_callback_that_raises_ends_its_own_request_only(caplog: pytest.LogCaptureFixture) -> None:
    def raising(_event) -> None:
        raise RuntimeError("the caller's fault")

    with serving("qwen3_5") as client:
        prompt = random_prompt(1, 9)
        with client.engine._changed:
            client.submit(prompt, 500, also=raising)
            other = client.submit(prompt, 4)
        assert_greedy("qwen3_5", [prompt], [other.wait()], 4)
        assert_healthy("qwen3_5", client)
        assert client.engine.stats().requests["abort"] == 1
    assert "the caller's fault" in caplog.text


@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_a_fault_of_the_model_ends_every_request_with_an_error(family: str) -> None:
    def failing(_rows):
        raise RuntimeError("out of memory")

    with serving(family) as client:
        client.ask(random_prompt(1, 20), 3)
        with client.engine._changed:
            client.engine._runner.step = failing
            pending = [client.submit(random_prompt(seed, 20), 3) for seed in (1, 2)]
        assert [request.wait().finish for request in pending] == ["error"] * 2
        client.engine._thread.join()
        assert client.engine.failed
        with pytest.raises(EngineClosedError):
            client.ask(random_prompt(3, 9))
        client.assert_idle_and_whole()


def test_close_ends_running_and_waiting_requests() -> None:
    with serving("inkling", max_running=2) as client:
        pending = [client.submit(random_prompt(seed, 20), 3000, sampling=greedy(500)) for seed in range(4)]
        pending[0].wait_for_token()
        client.engine.close()
        assert [request.wait().finish for request in pending] == ["abort"] * 4
        client.assert_idle_and_whole()
        client.engine.close()
        with pytest.raises(EngineClosedError):
            client.ask(random_prompt(9, 5))


def test_close_from_a_callback() -> None:
    with serving("llama") as client:
        pending = client.submit(random_prompt(1, 9), 50, also=lambda event: client.engine.close())
        assert pending.wait().finish == "abort"
        client.engine._thread.join()
        client.assert_idle_and_whole()


def test_submit_from_a_callback() -> None:
    with serving("llama") as client:
        prompt = random_prompt(1, 9)
        follow_up = []

        def go_on(event) -> None:
            if event.finish_reason:
                follow_up.append(client.submit(prompt, 3))

        client.submit(prompt, 3, also=go_on).wait()
        assert follow_up[0].wait().reused == 8
