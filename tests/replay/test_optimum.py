"""The optimum and the bound against everything that can be tried, on tiny traces."""

from __future__ import annotations

from functools import partial

import pytest

from graftline.components import Checkpoint, Full, ReuseRule, Window
from graftline.replay.compositions import parse_composition
from graftline.replay.forest import passages
from graftline.replay.optimum import clairvoyant
from graftline.replay.prices import Pool, priced_bound
from graftline.replay.simulate import Setup, simulate
from replay.support import PAGE, best_by_trying, random_trace, request

TINY = partial(random_trace, requests=7, depth=3, branches=2)
FULL = parse_composition("full")


def clairvoyant_pages(trace, slots: int) -> tuple[int, bool]:
    best = clairvoyant(passages(trace), slots)
    return int(best.reused_pages.sum()), best.exact


@pytest.mark.parametrize("slots", [3, 5, 7])
@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_what_trying_everything_finds(seed: int, slots: int) -> None:
    trace = TINY(seed)
    found, exact = clairvoyant_pages(trace, slots)
    tried = best_by_trying(trace, [(Full(), slots)])
    assert found >= tried
    if exact:
        assert found == tried


def test_most_optima_are_exact() -> None:
    flags = [clairvoyant_pages(TINY(seed), slots)[1] for seed in range(100) for slots in (3, 5, 7)]
    assert sum(flags) > 0.9 * len(flags)
    assert not all(flags), "the case that is only a bound must be among them"


def test_where_every_prompt_has_a_rest_and_no_answer_the_optimum_is_exact() -> None:
    for seed in range(50):
        trace = [
            request(list(map(int, paged.pages)), rest=1)
            for paged in TINY(seed, always_rest=True, requests=12)
        ]
        assert clairvoyant_pages(trace, 5)[1]


def test_the_optimum_keeps_the_path_that_comes_back_sooner() -> None:
    a, b, c = (request([page, page], rest=1) for page in (1, 2, 3))
    found, exact = clairvoyant_pages([a, b, c, b, a], 6)
    assert (found, exact) == (3, True)  # b whole; of a, one page stays beside b, c and their rests


def test_a_page_that_is_made_again_anyway_is_not_worth_keeping() -> None:
    exact_end, other = request([1]), request([2], rest=1)
    assert clairvoyant_pages([exact_end, other, exact_end, other], 3) == (1, True)


@pytest.mark.parametrize("slots", [4, 6, 9, 14, 30])
@pytest.mark.parametrize("seed", range(12))
def test_no_run_of_the_real_cache_reuses_more(seed: int, slots: int) -> None:
    trace = random_trace(seed, 80)
    figures = simulate(trace, Setup(FULL, {"full": slots}, PAGE))
    assert figures.reused_tokens <= clairvoyant_pages(trace, slots)[0] * PAGE


def test_more_slots_never_lower_the_optimum() -> None:
    for seed in range(10):
        trace = random_trace(seed, 60)
        least = max(paged.occupied_pages for paged in trace)
        found = [clairvoyant_pages(trace, slots)[0] for slots in range(least, least + 30)]
        assert found == sorted(found)


def test_with_room_for_all_the_optimum_is_the_endless_cache() -> None:
    trace = random_trace(5, 80)
    ahead = passages(trace)
    assert clairvoyant_pages(trace, 1000)[0] == ahead.endless_pages().sum()


POOLS: list[list[tuple[ReuseRule, int]]] = [
    [(Checkpoint(), 2)],
    [(Window(2 * PAGE), 4)],
    [(Full(), 5), (Checkpoint(), 2)],
    [(Full(), 5), (Window(PAGE), 2)],
    [(Full(), 6), (Window(PAGE), 3), (Checkpoint(), 2)],
]


@pytest.mark.parametrize("pools", POOLS, ids=lambda pools: "+".join(type(rule).__name__ for rule, _ in pools))
def test_the_bound_is_one(pools: list[tuple[ReuseRule, int]]) -> None:
    """No choice of what is kept, of all there are, reuses more."""
    below_endless = 0
    for seed in range(25):
        trace = TINY(seed, requests=5)
        closed = [slots for rule, slots in pools if rule.prefix_closed]
        ahead = passages(trace)
        served = ahead.served(min(closed)) if closed else ahead
        bound = priced_bound(served, [Pool(*pool) for pool in pools], PAGE)
        assert bound >= best_by_trying(trace, pools)
        below_endless += bound < served.endless_pages().sum()
    assert below_endless, "a bound that never bounds shows nothing"


@pytest.mark.parametrize("slots", [5, 8, 12])
def test_prices_come_near_the_exact_optimum_and_never_below(slots: int) -> None:
    exact_pages = bound_pages = 0
    for seed in range(8):
        served = passages(random_trace(seed, 60, always_rest=True)).served(slots)
        best = int(clairvoyant(served, slots).reused_pages.sum())
        bound = priced_bound(served, [Pool(Full(), slots)], PAGE)
        assert bound >= best
        exact_pages, bound_pages = exact_pages + best, bound_pages + bound
    assert bound_pages <= 1.15 * exact_pages


@pytest.mark.parametrize("text", ["full+state", "full+swa:9", "full+swa:9+state", "swa:9", "state"])
def test_no_run_of_several_components_passes_the_bound(text: str) -> None:
    composition = parse_composition(text)
    for seed in range(6):
        trace = random_trace(seed, 80)
        slots = {"full": 12, "swa": 10, "state": 3}
        slots = {name: slots[name] for name, _ in composition.rules}
        figures = simulate(trace, Setup(composition, slots, PAGE, chunk_tokens=PAGE))
        ahead = passages(trace).served(12 if "full" in slots else 1000)
        pools = [Pool(rule, slots[name]) for name, rule in composition.rules]
        assert figures.reused_tokens <= priced_bound(ahead, pools, PAGE) * PAGE
