"""The paths of a whole trace as one tree of runs, and who passes where and when.

Pages between two places where requests part, end, or reach their limit are passed by exactly the same
requests. They form one run, and everything that looks ahead (`optimum.py`, `prices.py`) handles runs
instead of pages: thousands instead of millions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graftline.replay.requests import Ids
from graftline.replay.tokens import PagedRequest

Counts: TypeAlias = npt.NDArray[np.int64]
NEVER = -1


@dataclass(frozen=True, slots=True)
class Passages:
    """Which request passes which runs. Requests and runs are numbered from 0; run 0 is the empty root.

    Attributes:
        first: start of each request's passages in the arrays below, and their end, shape (requests + 1,).
        run: the run passed, from the root down, shape (passages,).
        wanted: whether the request may reuse the run, same shape; the runs of a request that it may
            reuse come before those that it may not.
        occupied_pages: pages that each request needs for itself at once, shape (requests,).
        prompt_tokens: shape (requests,).
        start_page: of each run, shape (runs,).
        end_page: of each run, shape (runs,).
        parent: of each run, shape (runs,).
    """

    first: Counts
    run: Counts
    wanted: npt.NDArray[np.bool_]
    occupied_pages: Counts
    prompt_tokens: Counts
    start_page: Counts
    end_page: Counts
    parent: Counts

    @property
    def requests(self) -> int:
        """How many."""
        return len(self.occupied_pages)

    @property
    def pages(self) -> int:
        """Different pages of the whole trace: what an endless cache would hold in the end."""
        return int((self.end_page - self.start_page).sum())

    def request_of(self) -> Counts:
        """The request of each passage."""
        return np.repeat(np.arange(self.requests, dtype=np.int64), np.diff(self.first))

    def served(self, capacity_pages: int) -> Passages:
        """Without the passages of requests that alone need more than the capacity; they keep their number."""
        fits = self.occupied_pages <= capacity_pages
        if fits.all():
            return self
        kept = fits[self.request_of()]
        counts = np.diff(self.first) * fits
        first = np.concatenate([[0], np.cumsum(counts)])
        return Passages(
            first=first,
            run=self.run[kept],
            wanted=self.wanted[kept],
            occupied_pages=self.occupied_pages * fits,
            prompt_tokens=self.prompt_tokens,
            start_page=self.start_page,
            end_page=self.end_page,
            parent=self.parent,
        )

    def before(self) -> Counts:
        """For each passage, the request that passed the same run last before it, or `NEVER`."""
        order = np.argsort(self.run, kind="stable")
        requests = self.request_of()[order]
        same = self.run[order][1:] == self.run[order][:-1]
        result = np.full(len(order), NEVER, dtype=np.int64)
        result[order[1:][same]] = requests[:-1][same]
        return result

    def after(self) -> Counts:
        """For each passage, the place of the next passage of the same run, or `NEVER`."""
        order = np.argsort(self.run, kind="stable")
        same = self.run[order][1:] == self.run[order][:-1]
        result = np.full(len(order), NEVER, dtype=np.int64)
        result[order[:-1][same]] = order[1:][same]
        return result

    def endless_pages(self) -> Counts:
        """Pages that an endless cache would let each request reuse, shape (requests,)."""
        found = self.wanted & (self.before() != NEVER)
        pages = np.where(found, (self.end_page - self.start_page)[self.run], 0)
        sums = np.concatenate([[0], np.cumsum(pages)])
        of_requests: Counts = sums[self.first[1:]] - sums[self.first[:-1]]
        return of_requests


class Forest:
    """A growing tree of runs."""

    def __init__(self) -> None:
        self.start = [0]
        self.end = [0]
        self.parent = [0]
        self.ids: list[Ids] = [np.empty(0, dtype=np.uint64)]
        self.children: list[dict[int, int]] = [{}]

    def add(self, path: Ids, start_run: int = 0) -> int:
        """Puts a path below a run; returns the run at whose end the path ends."""
        run, done = start_run, 0
        while done < len(path):
            child = self.children[run].get(int(path[done]))
            if child is None:
                return self._append(run, path[done:])
            ids = self.ids[child]
            rest = path[done : done + len(ids)]
            equal = ids[: len(rest)] == rest
            common = len(rest) if equal.all() else int(equal.argmin())
            run = child if common == len(ids) else self._split(child, common)
            done += common
        return run

    def path(self, run: int) -> list[int]:
        """The runs from the root down to one of them, root left out."""
        found = []
        while run:
            found.append(run)
            run = self.parent[run]
        return found[::-1]

    def _append(self, parent: int, ids: Ids) -> int:
        run = len(self.start)
        start = self.end[parent]
        self.start.append(start)
        self.end.append(start + len(ids))
        self.parent.append(parent)
        self.ids.append(ids)
        self.children.append({})
        self.children[parent][int(ids[0])] = run
        return run

    def _split(self, run: int, pages: int) -> int:
        """Cuts a run after some pages; returns the upper part. The run's number stays with the lower one."""
        ids, parent = self.ids[run], self.parent[run]
        upper = self._append(parent, ids[:pages])
        self.start[run] = self.end[upper]
        self.ids[run] = ids[pages:]
        self.parent[run] = upper
        self.children[upper][int(ids[pages])] = run
        return upper


class Recorder:
    """Notes passages as requests, or parts of them, go by."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self.run, self.wanted, self.first = array("q"), array("b"), array("q", [0])
        self.occupied, self.tokens = array("q"), array("q")

    def note(self, runs: Iterable[int], limit_pages: int, occupied_pages: int, prompt_tokens: int) -> None:
        """One passage of each run, at one time."""
        for run in runs:
            self.run.append(run)
            self.wanted.append(self.forest.end[run] <= limit_pages)
        self.first.append(len(self.run))
        self.occupied.append(occupied_pages)
        self.tokens.append(prompt_tokens)

    def passages(self) -> Passages:
        """All that was noted."""
        return Passages(
            first=np.array(self.first, dtype=np.int64),
            run=np.array(self.run, dtype=np.int64),
            wanted=np.array(self.wanted, dtype=np.bool_),
            occupied_pages=np.array(self.occupied, dtype=np.int64),
            prompt_tokens=np.array(self.tokens, dtype=np.int64),
            start_page=np.array(self.forest.start, dtype=np.int64),
            end_page=np.array(self.forest.end, dtype=np.int64),
            parent=np.array(self.forest.parent, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Where requests overlap: a prompt was computed, or the answer to it."""

    paged: PagedRequest
    is_answer: bool


def passages(trace: Iterable[PagedRequest]) -> Passages:
    """Of requests one at a time. Goes through the trace once. Memory: O(passages)."""
    forest = Forest()
    ends, limits, occupied, tokens = array("q"), array("q"), array("q"), array("q")
    for paged in trace:
        ends.append(plant(forest, paged).path_end)
        limits.append(paged.limit_pages)
        occupied.append(paged.occupied_pages)
        tokens.append(paged.request.prompt_tokens)
    recorder = Recorder(forest)
    for end, limit, own, count in zip(ends, limits, occupied, tokens, strict=True):
        recorder.note(forest.path(end), limit, own, count)
    return recorder.passages()


def overlapping_passages(steps: Sequence[Step]) -> Passages:
    """Of requests that overlap: a time for each prompt, and one for each answer.

    At the time of an answer its pages alone are passed, none of which is wanted. That its prompt is held
    meanwhile is left out, so what looks ahead over these passages gives bounds, not what can be reached.
    """
    forest = Forest()
    planted = [plant(forest, step.paged) for step in steps]
    recorder = Recorder(forest)
    for step, ends in zip(steps, planted, strict=True):
        paged = step.paged
        if step.is_answer:
            behind = len(forest.path(ends.prompt_end))
            recorder.note(forest.path(ends.path_end)[behind:], 0, len(paged.answer), 0)
        else:
            tokens = paged.request.prompt_tokens
            recorder.note(forest.path(ends.prompt_end), paged.limit_pages, paged.prompt_slots, tokens)
    return recorder.passages()


@dataclass(frozen=True, slots=True)
class Ends:
    """The runs at whose ends a request's prompt and its whole path end; they keep their numbers in splits."""

    prompt_end: int
    path_end: int


def plant(forest: Forest, paged: PagedRequest) -> Ends:
    """Puts a request's path into the forest, with runs ending at its limit and at its prompt's end."""
    at_limit = forest.add(paged.pages[: paged.limit_pages])
    at_end = forest.add(paged.pages[paged.limit_pages :], at_limit)
    return Ends(at_end, forest.add(paged.answer, at_end))
