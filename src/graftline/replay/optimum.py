"""The clairvoyant optimum of a prefix-closed component: most pages reused by anyone who knows the future.

**The problem.** Requests come one at a time. Request `t` has a path of pages, of which it may reuse a
first part (rule M-3); while it is served, its whole path lies in the pool, together with the page that it
has begun: `occ(t)` slots. Beside them, pages of other paths may be kept, as long as all fit in `C` slots.
A page that is kept from one passage of its path to the next, and is wanted there, is a page reused. What
is kept must be closed: a page without the pages before it is of no use (rule R-3).

**The rule.** Whenever the pool is too small for the next request, what leaves is the page whose next
wanted passage lies farthest away; a page whose next passage does not want it has none, as it is computed
again there anyway. Of pages with equal next passages the deepest leaves first.

**Why nobody does better.** Leave out for a moment that what is kept must be closed. Let `G` be what the
rule does, and `O` a best schedule; dropping a page can be put off until its room is needed, so let `O` do
that. Let `s` be the first time at which they differ, and `O` the best schedule for which that is latest.
At `s` both drop equally many pages out of the same set: some `x` is dropped by `G` and kept by `O`, some
`y` is dropped by `O` and kept by `G`. The rule chose, so `y`'s next wanted passage is no later than `x`'s,
or neither has one. Let `O'` do as `O`, but keep `y` in place of `x`, until one of these comes first:

- `O` drops `x`: `O'` drops `y`, and both hold the same from then on, with as much won.
- `y`'s next passage: `O'` wins there what `O` does not, if it is wanted. From then on `y` is with both, and
  `O'` has one page less to hold. `O` may win `x` at `x`'s next passage, which `O'` does not, and then
  `x` is with both. If `y`'s passage is not wanted, neither is `x`'s, and nothing is won by either.
- `x`'s next passage, which then is not wanted, or it would not come before `y`'s: nothing is won. `O'` drops
  `y` there, and both hold the same from then on.

So `O'` wins no less, holds no more at any time, and differs from `G` later than at `s`, or not at all: a
contradiction. That `occ` differs from request to request changes nothing in this.

Now closedness. Every passage of a page passes the pages before it, so wherever "next wanted passage" is
monotone along a path, the rule drops no page before the ones behind it, its set is closed, and the optimum
without closedness, which is at least the one with it, is reached: **exact**. It fails to be monotone in
one case only: a page that is passed next by a request that does not want it, because this request's limit,
or its prompt, ends just before that page, while a page behind it is wanted later. The rule may then drop
the front page and keep the one behind. The result is still an upper bound, by the same argument, and
`Optimum.exact` is False when it happened.

A run of a real cache keeps a set that is closed, fits and holds each request's path, so it never reuses
more.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from graftline.replay.forest import NEVER, Counts, Passages

Entry = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Optimum:
    """What the best possible order of eviction would reuse.

    Attributes:
        reused_pages: of each request, shape (requests,).
        exact: whether it can be reached; else it is only known that nobody reuses more in all.
    """

    reused_pages: Counts
    exact: bool


class Clairvoyant:
    """Plays the rule over runs of pages; all pages of a run have the same future.

    Attributes:
        held: pages held of each run, from its start.
        held_children: how many children of each run hold something.
        total: pages held in all.
        closed: False once a run lost pages before one behind it.
    """

    def __init__(self, passages: Passages, capacity_pages: int) -> None:
        self.capacity = capacity_pages
        self.size: list[int] = (passages.end_page - passages.start_page).tolist()
        self.depth: list[int] = passages.end_page.tolist()
        self.parent: list[int] = passages.parent.tolist()
        self.held = [0] * len(self.size)
        self.held_children = [0] * len(self.size)
        self.entry_of = [0] * len(self.size)
        self.entries: list[Entry] = []
        self.total = 0
        self.closed = True

    def take(self, run: int) -> int:
        """Removes a run, which is then in the hands of a request; returns the pages that were held."""
        pages = self.held[run]
        if pages:
            self._set(run, 0)
        return pages

    def put(self, run: int, next_use: int) -> None:
        """Holds a whole run that is wanted next at `next_use`."""
        self._set(run, self.size[run])
        self._enter(run, -next_use)

    def make_room(self, pages: int) -> None:
        """Drops runs until `pages` more fit."""
        need = self.total + pages - self.capacity
        while need > 0:
            key, _, run, entry = heapq.heappop(self.entries)
            if entry != self.entry_of[run] or not self.held[run]:
                continue
            if self.held_children[run]:
                self.closed = False
            dropped = min(need, self.held[run])
            self._set(run, self.held[run] - dropped)
            need -= dropped
            if self.held[run]:
                self._enter(run, key)

    def _set(self, run: int, pages: int) -> None:
        before, self.held[run] = self.held[run], pages
        self.total += pages - before
        self.held_children[self.parent[run]] += bool(pages) - bool(before)

    def _enter(self, run: int, key: int) -> None:
        self.entry_of[run] += 1
        heapq.heappush(self.entries, (key, -self.depth[run], run, self.entry_of[run]))


def clairvoyant(passages: Passages, capacity_pages: int) -> Optimum:
    """The optimum for one prefix-closed component. Cost: O(passages x log runs).

    Requests that need more than the capacity for themselves are left out: nothing can serve them.
    """
    served = passages.served(capacity_pages)
    after = served.after()
    next_use = np.where(
        (after != NEVER) & served.wanted[after], served.request_of()[after], served.requests
    ).tolist()
    pool = Clairvoyant(served, capacity_pages)
    runs, wanted = served.run.tolist(), served.wanted.tolist()
    first, occupied = served.first.tolist(), served.occupied_pages.tolist()
    reused = np.zeros(served.requests, dtype=np.int64)
    for request in range(served.requests):
        places = range(first[request], first[request + 1])
        found = 0
        for place in places:
            pages = pool.take(runs[place])
            found += pages if wanted[place] else 0
        reused[request] = found
        pool.make_room(occupied[request])
        for place in places:
            pool.put(runs[place], next_use[place])
    return Optimum(reused, pool.closed)
