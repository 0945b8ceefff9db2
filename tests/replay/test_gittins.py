"""The order that weighs returns against room: what it learns, and that it pays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graftline.components import ComponentSpec, Full
from graftline.policies import Gittins, Passage, Usage
from graftline.policies.gaps import AT, LAST, Gaps, bucket, early_shape
from graftline.replay.compositions import parse_composition
from graftline.replay.requests import NO_IDS, ReplayRequest
from graftline.replay.simulate import Setup, simulate
from graftline.replay.tokens import PagedTrace
from spec.cache_support import INSTALLED

PAGE_TOKENS, PATH_PAGES = 16, 4


class Turns:
    """Sessions that come back in turn, each with the same path and some pages more, and strangers between."""

    name = "turns"
    empty_prompts = 0

    def __init__(self, sessions: int, turns: int) -> None:
        self.sessions, self.turns = sessions, turns

    def __iter__(self) -> Iterator[ReplayRequest]:
        for turn in range(self.turns):
            for number in range(self.sessions):
                now_s = 10.0 * turn + number * 10.0 / self.sessions
                yield request(f"regular {number}", turn, now_s, number << 20, PATH_PAGES + turn // 8)
                stranger = turn * self.sessions + number
                yield request(f"stranger {stranger}", 0, now_s, (1 << 40) + (stranger << 20), PATH_PAGES)


def request(session: str, turn: int, now_s: float, first_page: int, pages: int) -> ReplayRequest:
    """One whose blocks are pages."""
    return ReplayRequest(
        ident=f"{session}, {turn}",
        session=session,
        turn=turn,
        arrival_s=now_s,
        think_s=None,
        prompt_tokens=pages * PAGE_TOKENS + 1,
        answer_tokens=1,
        unit_tokens=PAGE_TOKENS,
        prompt_ids=np.arange(first_page, first_page + pages, dtype=np.uint64),
        answer_ids=NO_IDS,
    )


def reused(policy: str, core: str, *, told: bool = True) -> int:
    """Tokens reused of a trace whose regulars need twice the room that there is.

    Args:
        told: whether the cache is told of sessions; else it finds them out by itself.
    """
    slots = {"full": 6 * PATH_PAGES}
    setup = Setup(parse_composition("full"), slots, PAGE_TOKENS, policy, core, sessions=told)
    return simulate(PagedTrace(Turns(sessions=10, turns=40)), setup).reused_tokens


@pytest.mark.rule("P-7", "P-8", "P-9")
def test_of_sessions_that_come_back_in_turn_some_are_kept_and_strangers_are_not() -> None:
    """Plain recency always drops what comes back next, and finds nothing."""
    assert reused("lru", "python") == 0
    regulars = 10 * 39 * PATH_PAGES * PAGE_TOKENS
    assert reused("gittins", "python") > regulars // 4


@pytest.mark.rule("P-5", "P-9")
def test_both_cores_reuse_the_same() -> None:
    pytest.importorskip("graftline._core")
    assert reused("gittins", "rust") == reused("gittins", "python")


@pytest.mark.rule("P-9", "S-9")
@pytest.mark.parametrize("core", INSTALLED)
def test_strangers_whom_nobody_names_are_not_kept_either(core: str) -> None:
    """What nobody has passed yet counts as seen when it comes, not only when it comes back."""
    policy = Gittins()
    policy.bind([ComponentSpec("full", Full(), 99)])
    for first_page in range(0, 400, 4):
        usage = Usage()
        usage.start_page, usage.end_page, usage.uses = first_page, first_page + 4, 1
        policy.touch(usage, 0, 0.0)
    policy.settled()
    assert policy.chance_in(usage) < 0.1
    assert reused("gittins", core, told=False) > 0.5 * reused("gittins", core)


@pytest.mark.rule("P-9")
def test_what_comes_back_after_one_gap_promises_most_just_before_it() -> None:
    gaps = Gaps()
    gaps.add(1.0, 1e6)
    gaps.refit(early_shape(), 1.0)
    early, later, due, late, gone = (gaps.index(0.9, age) for age in (0.0, 0.5, 0.9, 1.5, 10.0))
    assert early < later < due
    assert due > late > gone
    assert gaps.back_by(0.9) < 0.01
    assert gaps.back_by(1.3) > 0.99


def test_buckets_lie_between_edges_that_rise() -> None:
    assert sorted(set(AT)) == list(AT)
    assert [bucket(0.0), bucket(AT[7]), bucket(1e9)] == [0, 7, LAST]


@pytest.mark.rule("P-9")
def test_who_went_on_before_is_worth_more_than_who_never_did() -> None:
    policy = Gittins()
    policy.bind([ComponentSpec("full", Full(), slots=1)])
    usages: dict[int, Usage] = {}
    for step in range(400):
        policy.set_time(float(step))
        for session in (step % 5, 1000 + step):
            usages[session] = pass_once(policy, usages.get(session, Usage()), session)
    assert policy.rank(usages[4]) > 10 * policy.rank(usages[1399])


def pass_once(policy: Gittins, usage: Usage, session: int) -> Usage:
    """One request of a session, all of whose path is one run."""
    usage.start_page, usage.end_page = 0, 4
    policy.registered(Passage(session, pages=4, kept_pages=None, answer_pages=0))
    policy.passed(usage)
    policy.settled()
    usage.sessions = 1
    return usage


class Detours:
    """Told of sessions that leave their path for a side task each second time, and come back to it."""

    def __init__(self) -> None:
        self.policy = Gittins()
        self.policy.bind([ComponentSpec("full", Full(), slots=1)])
        self.now_s = 0.0

    def turn(self, session: int, usage: Usage, left: Usage | None, pages: int) -> None:
        """A request that passes a run; the session refers to another one no more."""
        self.now_s += 1.0
        self.policy.set_time(self.now_s)
        usage.start_page, usage.end_page = 0, pages
        self.policy.registered(Passage(session, pages, 0 if left else None, answer_pages=0))
        self.policy.passed(usage)
        self.policy.settled()
        usage.sessions = 1
        if left is not None:
            left.sessions = 0
            self.policy.left(left)

    def session(self, session: int) -> tuple[Usage, Usage]:
        """One whole session: its path, left for a side task at last, and that of the side task before."""
        path, side = Usage(), Usage()
        self.turn(session, path, None, pages=8)
        for _ in range(4):
            side = Usage()
            self.turn(session, side, path, pages=4)
            self.turn(session, path, side, pages=8)
        self.turn(session, Usage(), path, pages=4)
        return path, side


@pytest.mark.rule("P-8", "P-9")
def test_a_path_left_for_a_side_task_is_worth_more_than_the_side_task() -> None:
    detours = Detours()
    path, side = [detours.session(number) for number in range(40)][-1]
    for usage in (path, side):
        usage.since_s = detours.now_s
    assert path.sessions == side.sessions == 0
    assert detours.policy.rank(path) > 3 * detours.policy.rank(side)


@pytest.mark.rule("P-9")
def test_what_is_told_before_a_registration_counts_in_any_order() -> None:
    one, other = Gittins(), Gittins()
    for policy, sizes in ((one, (3, 5, 7)), (other, (7, 3, 5))):
        policy.bind([ComponentSpec("full", Full(), slots=1)])
        for pages in sizes:
            usage = Usage()
            usage.start_page, usage.end_page, usage.passes, usage.kind = 0, pages, 1, 1
            before = policy.rank(usage)
            policy.left(usage)
            assert policy.rank(usage) == before
        policy.settled()
    usage = Usage()
    usage.passes = usage.kind = usage.end_page = 1
    assert one.rank(usage) == other.rank(usage) < before
