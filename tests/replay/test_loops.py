"""Requests that overlap."""

from __future__ import annotations

import pytest

from graftline.errors import ConfigError
from graftline.replay.compositions import parse_composition
from graftline.replay.cost import CostModel
from graftline.replay.forest import overlapping_passages
from graftline.replay.loops import Arrivals, Clients, play
from graftline.replay.optimum import clairvoyant
from graftline.replay.simulate import Setup, simulate
from replay.support import PAGE, random_trace, request

COST = CostModel(prefill_tokens_per_s=10.0, decode_tokens_per_s=1.0)


def setup(text: str = "full", cost: CostModel = COST, **slots: int) -> Setup:
    return Setup(parse_composition(text), slots or {"full": 200}, PAGE, cost=cost, chunk_tokens=PAGE)


def test_arrivals_far_apart_are_one_at_a_time() -> None:
    trace = random_trace(1, 60)
    alone = simulate(trace, setup(full=12))
    figures, _ = play(trace, setup(full=12), Arrivals(speed=1e-6))
    assert (figures.reused_tokens, figures.turns) == (alone.reused_tokens, alone.turns)
    assert figures.first_token == alone.first_token


def test_a_prompt_waits_for_the_one_before() -> None:
    trace = [request([1, 2], rest=2, arrival_s=0.0), request([5, 6], rest=2, arrival_s=0.4)]
    figures, _ = play(trace, setup(), Arrivals())
    assert figures.first_token.mean_s == pytest.approx((1.0 + 1.6) / 2)
    assert figures.span_s == pytest.approx(2.0)
    twice, _ = play(trace, setup(), Arrivals(speed=2.0))
    assert twice.first_token.mean_s == pytest.approx((1.0 + 1.8) / 2)


def test_running_max_makes_requests_wait_for_answers() -> None:
    trace = [request([page], rest=1, answer_tokens=11, arrival_s=0.0) for page in (1, 2)]
    one, _ = play(trace, setup(), Arrivals(), running_max=1)
    many, _ = play(trace, setup(), Arrivals(), running_max=2)
    assert one.first_token.p99_s - many.first_token.p99_s == pytest.approx(10.0, abs=0.3)


def test_a_request_finds_what_a_running_one_computed() -> None:
    trace = [request([1, 2], rest=1, answer_tokens=100), request([1, 2, 3], rest=1, arrival_s=5.0)]
    figures, steps = play(trace, setup(), Arrivals())
    assert figures.reused_tokens == 2 * PAGE
    assert [(step.is_answer, len(step.paged.pages)) for step in steps] == [
        (False, 2),
        (False, 3),
        (True, 3),
        (True, 2),
    ]


def test_without_room_requests_wait_until_others_end() -> None:
    trace = [request([page, page, page], rest=1, answer_tokens=51, arrival_s=0.0) for page in (1, 2, 3)]
    figures, _ = play(trace, setup(full=8), Arrivals())
    assert (figures.requests, figures.refused) == (3, 0)
    assert figures.first_token.p99_s > 50


def test_a_request_that_waits_for_room_does_not_find_itself() -> None:
    # Room for the second one's page, but not for its begun one, until the first has ended.
    trace = [request([1], rest=1, answer_tokens=9, arrival_s=0.0), request([2], rest=1, arrival_s=0.1)]
    figures, _ = play(trace, setup(full=3), Arrivals())
    assert (figures.reused_tokens, figures.first_token.p99_s > 8) == (0, True)


def test_answers_without_room_are_left_out_and_counted() -> None:
    trace = [request([page] * 3, rest=1, answer=[7] * 3, answer_tokens=51, arrival_s=0.0) for page in (1, 2)]
    figures, steps = play(trace, setup(full=8), Arrivals())
    assert figures.unkept_answers == 1
    assert sum(step.is_answer for step in steps) == 1


def test_one_client_plays_session_after_session() -> None:
    trace = random_trace(4, 60)
    sessions = list(dict.fromkeys(paged.request.session for paged in trace))
    ordered = [paged for name in sessions for paged in trace if paged.request.session == name]
    alone = simulate(ordered, setup(full=12))
    figures, steps = play(trace, setup(full=12), Clients(1))
    assert [step.paged for step in steps if not step.is_answer] == ordered
    assert figures.reused_tokens == alone.reused_tokens


def test_clients_think_and_wait_for_their_answers() -> None:
    trace = [request([1], rest=1, session="a", answer_tokens=11), request([1, 2], rest=1, session="a")]
    figures, _ = play(trace, setup(), Clients(5, think_s=3.0))
    assert figures.span_s == pytest.approx(0.5 + 10.0 + 3.0 + 0.5)
    assert figures.requests == 2


@pytest.mark.parametrize("text", ["full", "full+swa:5", "full+state", "full+swa:5+state"])
def test_every_request_ends_and_nothing_is_left_behind(text: str) -> None:
    slots = {"full": 24, "swa": 16, "state": 6}
    given = {name: slots[name] for name, _ in parse_composition(text).rules}
    for seed in range(5):
        trace = random_trace(seed, 80)
        for loop in (Arrivals(), Clients(3), Arrivals(1e6)):
            figures, _ = play(
                trace, setup(text, CostModel(prefill_tokens_per_s=5.0), **given), loop, running_max=4
            )
            assert (figures.requests, figures.refused) == (80, 0)
            assert figures.reused_tokens + figures.computed_tokens == figures.prompt_tokens


@pytest.mark.parametrize("slots", [14, 20, 30])
def test_the_bound_holds_where_requests_overlap(slots: int) -> None:
    for seed in range(8):
        trace = random_trace(seed, 80)
        for loop in (Arrivals(), Clients(3)):
            figures, steps = play(trace, setup(full=slots), loop, running_max=4)
            best = clairvoyant(overlapping_passages(steps), slots)
            assert figures.reused_tokens <= best.reused_pages.sum() * PAGE


def test_arrivals_that_go_back_are_refused() -> None:
    trace = [request([1], arrival_s=5.0), request([2], arrival_s=4.0)]
    with pytest.raises(ConfigError, match="arrived before"):
        play(trace, setup(), Arrivals())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Arrivals(0.0),
        lambda: Clients(0),
        lambda: Clients(1, -1.0),
        lambda: CostModel(prefill_tokens_per_s=0.0),
        lambda: CostModel(token_bytes=-1),
        lambda: play([], setup(), Arrivals(), running_max=0),
    ],
)
def test_settings_that_cannot_work_are_refused(make) -> None:
    with pytest.raises(ConfigError):
        make()


def test_loading_counts_by_its_bytes() -> None:
    cost = CostModel(prefill_tokens_per_s=100.0, load_bytes_per_s=1e6, token_bytes=1000, overhead_s=0.5)
    assert cost.first_token_s(computed_tokens=50, loaded_tokens=2000) == pytest.approx(0.5 + 2.0 + 0.5)
    assert (cost.answer_s(0), cost.answer_s(1), cost.answer_s(51)) == (0.0, 0.0, 1.0)
