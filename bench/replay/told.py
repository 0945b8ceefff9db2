"""Orders of eviction that are told a part of the future, played through the real cache.

They are no policies: nobody can run them. What is told is a number for each run of values, when a request has
passed it: the request at which it is expected to be used again, `GONE` where it is told that it never is.
Nodes are cut where requests will part, so that all pages of a node have the same future, and what is told of
a node holds for each of its pages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from bench.replay.future import GONE, Floats, Future

from graftline.key import Namespace
from graftline.policies import EvictionPolicy, Gittins, Lru, Usage
from graftline.replay.simulate import Replayer, Setup
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, key_words
from graftline.tree import PythonCore
from graftline.tree.liveness import rank_holding
from graftline.tree.ranks import ask
from graftline.tree.split import split
from graftline.tree.state import State, path_up


class Told:
    """Reads from `Usage.weight` what was told; what is told to be gone leaves first.

    Attributes:
        now: the request that is served.
    """

    now = 0.0

    def level(self, usage: Usage) -> int:
        return int(usage.weight != GONE)


class ToldLru(Told, Lru):
    """What is told to be gone, then what was used longest ago."""


class ToldGittins(Told, Gittins):
    """What is told to be gone, then what promises the fewest returns."""


class ToldTime(Told, EvictionPolicy):
    """What is told to be gone, then what is expected farthest away."""

    name = "told time"

    def rank(self, usage: Usage) -> float:
        return -usage.weight


class ToldGuess(ToldTime):
    """The same where what was told may have passed: after that, as long again as it passed already.

    Nothing told is a time that has passed: that of the last use. So with nothing told at all, what was used
    longest ago leaves first.
    """

    ages = True

    def rank(self, usage: Usage) -> float:
        return -max(usage.weight, 2.0 * self.now - usage.weight)


class ToldDue(ToldTime):
    """The same where what is not used at the time that was told is known to be gone."""

    ages = True

    def level(self, usage: Usage) -> int:
        return int(usage.weight >= self.now)


class ToldReplayer(Replayer):
    """Serves requests, and tells the order of eviction what it is to know after each one.

    Args:
        setup: one prefix-closed component; its order of eviction and its core are left out.
        order: in place of that.
    """

    def __init__(self, setup: Setup, order: Told) -> None:
        super().__init__(replace(setup, policy=Lru.name, core="python"))
        self.order = order
        self.state: State = cast(PythonCore, self.cache.core)._state
        self.state.policy = cast(EvictionPolicy, order)
        self.state.policy.bind(self.state.specs)

    def tell(self, paged: PagedRequest, ends: Sequence[int], told: Sequence[float]) -> None:
        """Cuts the path of a request at the ends of its runs, and tells of each one."""
        words = key_words(np.concatenate([paged.pages, paged.answer]))
        found = self.cache.core.match(Namespace(), words)
        assert found.boundary_tokens == len(words) == KEY_TOKENS * (ends[-1] if ends else 0)
        node = self.state.node(found.node)
        for step in list(path_up(node)):
            for end in ends[bisect_right(ends, step.start) : bisect_left(ends, step.end)]:
                split(self.state, step, end)
        for step in path_up(node):
            step.holdings[0].usage.weight = told[bisect_left(ends, step.end)]
            ask(self.state, step, 0)
            rank_holding(self.state, step, 0)


def replay_told(
    trace: Iterable[PagedRequest], setup: Setup, future: Future, order: Told, told: Floats, *, closes: bool
) -> int:
    """Tokens that are reused, one request at a time.

    Args:
        trace: the requests.
        setup: as for `ToldReplayer`.
        future: of this trace, at this size.
        order: a new one.
        told: a place a passage.
        closes: whether each session is closed when its last request has ended, as its client could.
    """
    ends = future.passages.end_page[future.passages.run].tolist()
    first, numbers = future.passages.first.tolist(), told.tolist()
    replayer = ToldReplayer(setup, order)
    reused_pages = 0
    for number, paged in enumerate(trace):
        order.now = float(number)
        if not replayer.arrive(paged):
            continue
        reused_pages += replayer.serve(paged).boundary_tokens // KEY_TOKENS
        own = slice(first[number], first[number + 1])
        replayer.tell(paged, ends[own], numbers[own])
        if closes and future.is_last[number]:
            replayer.cache.close_session(paged.request.session)
    return reused_pages * setup.page_tokens
