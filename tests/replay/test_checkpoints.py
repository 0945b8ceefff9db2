"""Where states are kept, which of them are hit, and sessions that a trace names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graftline.cache import PrefixCache
from graftline.cache.placement import EVERYWHERE, Placement, parse_placement
from graftline.components import Checkpoint, ComponentSpec, Full
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.replay import Arrivals, Setup, parse_composition, simulate
from graftline.replay.checkpoints import OTHER, credit_states
from graftline.replay.loops import play
from graftline.replay.simulate import NoValues, Replayer
from replay.support import PAGE, random_trace, request

SLOTS = {"full": 400, "state": 100}
BRANCH = 2 * PAGE


def served(placement: Placement, *, rest: int, answer_pages: int) -> list[int]:
    """Boundaries with a state, in pages, after a prompt of six pages that leaves a known path after two."""
    cache = PrefixCache(
        [ComponentSpec("full", Full(), 100), ComponentSpec("state", Checkpoint(), 50)],
        page_tokens=PAGE,
        pools={"state": NoValues()},
    )
    known = np.arange(3 * PAGE, dtype=np.uint32)
    cache.placement = parse_placement("")
    compute(cache, known, np.empty(0, dtype=np.uint32))
    cache.placement = placement
    prompt = np.concatenate([known[:BRANCH], 500 + np.arange(4 * PAGE + rest, dtype=np.uint32)])
    answer = 900 + np.arange(answer_pages * PAGE, dtype=np.uint32)
    compute(cache, prompt, answer)
    path = np.concatenate([prompt, answer])
    cache.check()
    assert [use.private for use in cache.uses()] == [0, 0]
    return [
        boundary
        for boundary in range(1, len(path) // PAGE + 1)
        if cache.core.match(Namespace(), path[: boundary * PAGE]).votes[1].boundary_tokens == boundary * PAGE
    ]


def compute(cache: PrefixCache, prompt: np.ndarray, answer: np.ndarray) -> None:
    """Serves a request that computes a page at a time once its prompt is done."""
    with cache.begin(prompt) as running:
        running.append(answer)
        while running.computed_tokens < len(prompt) + len(answer):
            stop = running.next_stop()
            if running.computed_tokens >= len(prompt) // PAGE * PAGE:
                stop = (running.computed_tokens // PAGE + 1) * PAGE
            to = min(stop, len(prompt) + len(answer))
            running.grow(to)
            running.advance(to)
        running.finish()


@pytest.mark.parametrize(
    ("text", "rest", "answer_pages", "kept"),
    [
        ("replay,end,answer,branch", 0, 2, [2, 5, 6, 8]),
        ("replay,end,answer,branch", 1, 2, [2, 6, 8]),  # replay boundary and end are the same
        ("end,answer,branch", 0, 2, [2, 6, 8]),
        ("replay", 0, 2, [5]),
        ("end", 0, 2, [6]),
        ("branch", 0, 2, [2]),
        ("answer", 0, 2, [8]),
        ("answer", 0, 0, [6]),  # without an answer the prompt's end is the last
        ("answer", 1, 0, [6]),
        ("answer,branch", 1, 2, [2, 8]),
        ("end", 1, 0, [6]),
        ("grid:8", 0, 2, [2, 4, 6]),
        ("grid:12,answer", 0, 2, [3, 6, 8]),
        ("", 0, 2, []),
    ],
)
def test_states_are_kept_where_the_placement_says(
    text: str, rest: int, answer_pages: int, kept: list[int]
) -> None:
    assert served(parse_placement(text), rest=rest, answer_pages=answer_pages) == kept


def test_the_default_keeps_every_kind() -> None:
    assert parse_placement("replay, end, answer, branch, marks") == EVERYWHERE
    marked = parse_placement("marks").plan(PAGE, 6 * PAGE, 0, 0, [2 * PAGE + 1]).stops
    assert marked == (2 * PAGE,)
    assert Placement().plan(PAGE, 6 * PAGE, 5 * PAGE, 0, []).stops == (6 * PAGE,)


@pytest.mark.parametrize("text", ["all", "grid", "grid:0", "grid:x", "end:3", "replay;end"])
def test_placements_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no kind of boundary"):
        parse_placement(text)
    with pytest.raises(ConfigError, match="grid_tokens is -1"):
        Placement(grid_tokens=-1)


def setup(text: str = "replay,end,answer,branch", **options) -> Setup:
    return Setup(parse_composition("full+state"), SLOTS, PAGE, placement=parse_placement(text), **options)


def test_a_replay_places_states_as_the_cache_does() -> None:
    trace = [request([1, 2, 3], rest=1, answer=[4, 5]), request([1, 2, 9], rest=1), request([1, 2, 8])]
    for text, held in (("answer", 3), ("replay,end,answer,branch", 5), ("grid:8", 1), ("", 0)):
        replayer = Replayer(setup(text))
        for paged in trace:
            replayer.serve(paged)
        assert replayer.cache.uses()[1].held == held, text


def test_states_are_credited_to_the_boundary_they_were_kept_for() -> None:
    trace = [
        request([1, 2, 3], rest=1, answer=[4, 5], session="a"),
        request([1, 2, 3, 4, 5, 6], rest=1, answer=[7], session="a"),  # goes on behind the answer
        request([1, 2, 3], rest=1, session="b"),  # the same prompt again: the end
        request([1, 2, 9], rest=1, session="b"),  # leaves the path: a branch point
        request([1, 2, 8], rest=1, session="c"),  # begins there
    ]
    found = credit_states(trace, setup())
    kinds = {kind: (c.kept, c.hit, c.hits, c.hit_tokens) for kind, c in found.by_kind.items()}
    assert kinds == {
        "end": (4, 1, 1, 3 * PAGE),
        "answer": (2, 1, 1, 5 * PAGE),
        "branch": (1, 1, 1, 2 * PAGE),
    }
    assert found.tokens_by_rank == {"0": 5 * PAGE, OTHER: 5 * PAGE}
    assert found.reused_tokens == 10 * PAGE


@pytest.mark.parametrize("text", ["replay,end,answer,branch", "answer,branch", "grid:8", "grid:4,answer"])
def test_credit_adds_up(text: str) -> None:
    for seed in range(5):
        trace = random_trace(seed, 80, depth=8)
        small = Setup(
            parse_composition("full+state"), {"full": 40, "state": 9}, PAGE, placement=parse_placement(text)
        )
        found = credit_states(trace, small)
        figures = simulate(trace, small)
        assert found.reused_tokens == figures.reused_tokens
        assert sum(credit.hit_tokens for credit in found.by_kind.values()) == figures.reused_tokens
        assert sum(found.tokens_by_rank.values()) == figures.reused_tokens
        kept = sum(credit.kept for credit in found.by_kind.values())
        assert kept == figures.pools[1].held_slots + figures.pools[1].evicted_slots


def test_credit_needs_one_component_with_states() -> None:
    with pytest.raises(ConfigError, match="0 components with states"):
        credit_states([], Setup(parse_composition("full"), {"full": 9}, PAGE))


def test_the_cache_is_told_of_sessions_and_of_the_time() -> None:
    trace = [
        request([1, 2], rest=1, session="a", arrival_s=0.0),
        request([3, 4], rest=1, session="b", arrival_s=50.0),
    ]
    replayer = Replayer(setup(core="python"))
    for paged in trace:
        replayer.serve(paged)
    assert replayer.cache.core.stats().sessions == 2
    replayer.cache.set_time(3640.0)  # a is idle for longer than an hour, b is not
    assert replayer.cache.core.stats().sessions == 1
    silent = Replayer(setup(core="python", sessions=False))
    for paged in trace:
        silent.serve(paged)
    assert silent.cache.core.stats().sessions == 0


def test_a_request_without_a_session_opens_none() -> None:
    paged = request([1, 2], rest=1, session="request [1, 2]")  # as readers name it where the trace does not
    assert paged.request.session == paged.request.ident
    assert Replayer(setup()).session(paged) is None


def test_sessions_keep_what_comes_back() -> None:
    """Two conversations go on, a crowd of single prompts passes between their turns."""
    trace, paths = [], {"a": [1], "b": [2]}
    for turn in range(8):
        for session, path in paths.items():
            trace.append(request(path, rest=1, session=session, turn=turn))
            path.append(10 * turn + len(trace) + 100)
        for number in range(5):
            single = [1000 + 100 * turn + 10 * number + page for page in range(3)]
            trace.append(request(single, rest=1, session=f"request {single}"))
    rates = {}
    for policy in ("lru", "session"):
        given = Setup(parse_composition("full"), {"full": 24}, PAGE, policy, sessions=True)
        rates[policy] = simulate(trace, given).reused_tokens
    assert rates["session"] > rates["lru"]
    deaf = Setup(parse_composition("full"), {"full": 24}, PAGE, "session", sessions=False)
    assert simulate(trace, deaf).reused_tokens == rates["session"], "both conversations are recognised"
    deaf = replace(deaf, infer_sessions=False)
    assert simulate(trace, deaf).reused_tokens == rates["lru"]


def test_a_loop_tells_the_time_too() -> None:
    trace = random_trace(2, 60)
    given = Setup(parse_composition("full"), {"full": 60}, PAGE, "session", session_ttl_s=5.0)
    figures, _ = play(trace, given, Arrivals(1.0))
    assert figures.requests == 60
