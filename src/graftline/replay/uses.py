"""Which values each request of a replay used, and how many others were used since: reuse distances.

A page's place on its path is turned into a number of its own (a run's first number plus the place in the
run), so that uses of different paths can be counted together, as intervals of numbers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from graftline.replay.forest import Counts, Passages

Interval = tuple[int, int]
"""Pages, half-open."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far back the last use of a value lies.

    Attributes:
        request: the request that used it last, counted from 0.
        slots: different slots of its component that were used since, by that request too.
    """

    request: int
    slots: int


class Uses:
    """Intervals of pages that each request used of each component; requests in order, from 0.

    Args:
        ahead: the trace's paths.
    """

    def __init__(self, ahead: Passages) -> None:
        self.ahead = ahead
        sizes = ahead.end_page - ahead.start_page
        self._number = np.cumsum(sizes) - sizes
        self._of: dict[str, dict[int, list[Interval]]] = defaultdict(dict)

    def note(self, request: int, component: str, first_page: int, end_page: int) -> None:
        """A request used `[first_page, end_page)` of its own path."""
        if end_page > first_page:
            self._of[component].setdefault(request, []).append((first_page, end_page))

    def last(self, component: str, page: int, request: int) -> int | None:
        """The last request before `request` that used the page on this one's path; None for none."""
        run = self._run_at(request, page)
        if run is None:
            return None
        passed = self.ahead.request_of()[self.ahead.run == run]
        used = self._of[component]
        for earlier in passed[passed < request][::-1].tolist():
            if any(first <= page < end for first, end in used.get(earlier, ())):
                return int(earlier)
        return None

    def distance(self, component: str, page: int, request: int) -> Distance | None:
        """Slots used since the last use of a page on the path of `request`. Cost: O(passages between)."""
        last = self.last(component, page, request)
        if last is None:
            return None
        used = self._of[component]
        parts = [
            self._numbers(between, first, end)
            for between in range(last, request)
            for first, end in used.get(between, ())
        ]
        return Distance(last, covered(np.concatenate(parts)))

    def _run_at(self, request: int, page: int) -> int | None:
        ahead = self.ahead
        runs = ahead.run[ahead.first[request] : ahead.first[request + 1]]
        place = int(np.searchsorted(ahead.end_page[runs], page, side="right"))
        return int(runs[place]) if place < len(runs) else None

    def _numbers(self, request: int, first_page: int, end_page: int) -> Counts:
        """Pages of a request's path as intervals of numbers, shape (intervals, 2)."""
        ahead = self.ahead
        runs = ahead.run[ahead.first[request] : ahead.first[request + 1]]
        low = np.maximum(ahead.start_page[runs], first_page)
        high = np.minimum(ahead.end_page[runs], end_page)
        kept = low < high
        move = self._number[runs] - ahead.start_page[runs]
        return np.stack([(low + move)[kept], (high + move)[kept]], axis=1)


def covered(intervals: Counts) -> int:
    """How many numbers lie in at least one interval; shape (intervals, 2), half-open."""
    if not len(intervals):
        return 0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ordered[:, 1])
    fresh_from = np.maximum(ordered[:, 0], np.concatenate([[np.iinfo(np.int64).min], reach[:-1]]))
    return int(np.maximum(0, ordered[:, 1] - fresh_from).sum())
