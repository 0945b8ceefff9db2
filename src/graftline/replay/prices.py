"""A bound on reuse for several components at once, by prices for the room in the pools.

**The problem.** As in `optimum.py`, but a request that reuses `b` pages needs, of each component `c`, the
pages `[first_page_c(b), b)` (rule R-1), all held in a pool of `C_c` slots since the request that passed
them last; and while request `t` is served, `occ_c(t)` slots of each pool are its own. To choose the best
boundary for each request, so that everything fits at all times, is a large integer program.

**The bound.** Put a price `p_c(t) >= 0` on each slot of pool `c` at each time `t`, and let everybody take
what he likes. A request `r` that chooses boundary `b` wins `b` pages and pays for each page `y` that the
boundary needs the prices of all times between `y`'s last passage `before(y, r)` and `r`. In place of the
limits themselves, who keeps within them is paid for what he leaves: so for **any** prices

    reused pages  <=  sum over r of max over b of (b - pay_r(b))
                    + sum over c and t of p_c(t) * (C_c - occ_c(t))

because a real schedule is one choice of boundaries, for which the first sum is what it reuses less what it
pays, and what it pays is at most the second sum: at each time `t` it holds at most `C_c - occ_c(t)` pages
that are not on `t`'s path, and each of them is paid for by one request at most, the next one to pass it.
Better prices give a lower bound; a bad choice gives a bad bound, never a wrong one. Prices are constant
within a slice of time, start at the best constant, and rise where a pool is overbooked; slices get finer.

**What a boundary pays.** Boundaries at the end of a run suffice: inside a run the price of each further
page is the same; what leaves a window at its other end gets dearer with depth, as deeper pages were passed
longer ago. So what is paid is concave in `b`, what is left is convex, and its maximum lies at an end of
the run. A state is needed at the boundary alone and costs the same anywhere in a run. Chunks and rules of
one's own are let off without paying, which only raises the bound. `occ` is taken as the least that a
request cannot do without: its path (`Full`), its window at the end of its path (`Window`), the state it
works on (`Checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graftline.components import Checkpoint, Full, ReuseRule, Window
from graftline.replay.compositions import window_pages
from graftline.replay.forest import NEVER, Counts, Passages

Floats = npt.NDArray[np.float64]
SLICES = (64, 1024, 16384)
ROUNDS = 80
FIRST_HOPE = 0.1
PATIENCE = 5
ROUNDING = 1e-6
"""Sums of floats are trusted to this share; the bound is raised by it."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A component's rule and slots."""

    rule: ReuseRule
    slots: int


class Market:
    """What each request would choose at given prices.

    Its arrays have one place a passage that could be reused: wanted, and passed before.
    """

    def __init__(self, passages: Passages, pools: Iterable[Pool], page_tokens: int) -> None:
        self.pools = list(pools)
        self.page_tokens = page_tokens
        self.times = passages.requests
        before = passages.before()
        chosen = passages.wanted & (before != NEVER)
        self.before = before[chosen]
        self.request = passages.request_of()[chosen]
        run = passages.run[chosen]
        self.start, self.end = passages.start_page[run], passages.end_page[run]
        self.heads = np.flatnonzero(np.diff(self.request, prepend=-1))
        self.group = np.cumsum(np.diff(self.request, prepend=-1) != 0) - 1
        deepest = np.zeros(self.times, dtype=np.int64)
        np.maximum.at(deepest, passages.request_of(), passages.end_page[passages.run])
        is_served = np.diff(passages.first) > 0
        self.room = [self._room(pool, passages.occupied_pages, deepest, is_served) for pool in self.pools]
        # Places on one line on which each request's path follows the one before.
        lengths = self.end[np.append(self.heads[1:], len(self.end)) - 1] if len(self.end) else self.end
        self.base = (np.cumsum(lengths) - lengths)[self.group] if len(self.end) else self.end

    def _room(self, pool: Pool, path: Counts, deepest: Counts, is_served: npt.NDArray[np.bool_]) -> Counts:
        """Slots of a pool that are not the request's own, at each time."""
        if isinstance(pool.rule, Full):
            own = path
        elif isinstance(pool.rule, Window):
            own = np.minimum(window_pages(pool.rule, self.page_tokens), deepest)
        elif isinstance(pool.rule, Checkpoint):
            own = is_served.astype(np.int64)
        else:
            own = np.zeros_like(path)
        return np.maximum(0, pool.slots - own)

    def bound(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at some prices, shape (pools, slices), and by how much each slice is overbooked."""
        slices = prices.shape[1]
        slice_of = np.arange(self.times) * slices // max(1, self.times)
        by_time = prices[:, slice_of]
        paid = np.zeros(len(self.end))
        for pool, price in zip(self.pools, by_time, strict=True):
            paid += self._paid(pool.rule, self._span_price(price))
        left = self.end - paid
        best = np.maximum(np.maximum.reduceat(left, self.heads), 0.0) if len(left) else left
        offered = sum(float((price * room).sum()) for price, room in zip(by_time, self.room, strict=True))
        boundary = self._boundaries(left, best)
        overbooked = [
            np.bincount(slice_of, self._held(pool.rule, boundary) - room, minlength=slices)
            for pool, room in zip(self.pools, self.room, strict=True)
        ]
        return float(best.sum()) + offered, np.stack(overbooked)

    def _span_price(self, price: Floats) -> Floats:
        """What it costs to keep one slot from the passage before to this one, both ends left out."""
        until = np.concatenate([[0.0], np.cumsum(price)])
        spans: Floats = until[self.request] - until[self.before + 1]
        return spans

    def _paid(self, rule: ReuseRule, span: Floats) -> Floats:
        """What the boundary at the end of each run pays for one component."""
        if isinstance(rule, Checkpoint):
            return span
        if not isinstance(rule, Full | Window) or not len(span):
            return np.zeros(len(span))
        until = np.cumsum((self.end - self.start) * span)
        before_path = np.concatenate([[0.0], until])[self.heads][self.group]
        if isinstance(rule, Full):
            path: Floats = until - before_path
            return path
        low = np.maximum(0, self.end - window_pages(rule, self.page_tokens))
        line, paid = self.base + self.end, until
        window: Floats = until - np.interp(self.base + low, np.append(0, line), np.append(0.0, paid))
        return window

    def _boundaries(self, left: Floats, best: Floats) -> Counts:
        """The boundary that each request chooses, at each of its places; 0 for none."""
        wins = (left == best[self.group]) & (left > 0) if len(left) else np.zeros(0, dtype=np.bool_)
        boundary = np.zeros(len(self.heads), dtype=np.int64)
        boundary[self.group[wins]] = self.end[wins]
        of_places: Counts = boundary[self.group]
        return of_places

    def _held(self, rule: ReuseRule, boundary: Counts) -> Floats:
        """Slots in use at each time for the boundaries chosen."""
        if isinstance(rule, Checkpoint):
            pages = (self.end == boundary).astype(np.int64)
        elif isinstance(rule, Full):
            pages = np.where(self.end <= boundary, self.end - self.start, 0)
        elif isinstance(rule, Window):
            low = np.maximum(0, boundary - window_pages(rule, self.page_tokens))
            pages = np.maximum(0, np.minimum(self.end, boundary) - np.maximum(self.start, low))
        else:
            pages = np.zeros_like(boundary)
        change = np.bincount(self.before + 1, pages, minlength=self.times + 1)
        change = change - np.bincount(self.request, pages, minlength=self.times + 1)
        held: Floats = np.cumsum(change, dtype=np.float64)[: self.times]
        return held


def priced_bound(passages: Passages, pools: Iterable[Pool], page_tokens: int, rounds: int = ROUNDS) -> int:
    """Pages that no schedule can reuse more of, for all pools together.

    Cost: O(passages) a round, in numpy.

    Args:
        passages: of the requests that are served.
        pools: the components; in real tokens and pages.
        page_tokens: tokens a real page.
        rounds: how often the prices are bettered, for each width of slices.
    """
    market = Market(passages, pools, page_tokens)
    if not len(market.end):
        return 0
    prices, best = best_constant(market)
    for slices in SLICES:
        prices = prices[:, np.arange(slices) * prices.shape[1] // slices]
        prices, best = better(market, prices, best, rounds)
        if slices >= market.times:
            break
    return int(np.floor(best + ROUNDING * max(1.0, best)))


def better(market: Market, prices: Floats, best: float, rounds: int) -> tuple[Floats, float]:
    """Betters prices by Polyak's steps: along the excess, as far as an expected gain asks for.

    The expected gain is a share of the bound, and shrinks when rounds bring none. Pools are
    made alike by counting the price of a whole pool in place of that of a slot.
    """
    pool_slots = np.array([[max(1, pool.slots)] for pool in market.pools], dtype=np.float64)
    best_prices, hope, vain_rounds = prices, FIRST_HOPE, 0
    for _ in range(rounds):
        value, overbooked = market.bound(prices)
        if value < best:
            best, best_prices, vain_rounds = value, prices, 0
        else:
            vain_rounds += 1
        if vain_rounds == PATIENCE:
            hope, vain_rounds = hope / 1.5, 0
        slope = overbooked / pool_slots
        length = float((slope * slope).sum())
        if length == 0.0:
            break
        step = (value - best * (1 - hope)) / length
        prices = np.maximum(0.0, prices + step * slope / pool_slots)
    return best_prices, best


def best_constant(market: Market) -> tuple[Floats, float]:
    """The best prices that are the same at all times, one pool after the other, by trying powers of two."""
    prices = np.zeros((len(market.pools), 1))
    best, _ = market.bound(prices)
    longest = float((market.request - market.before).max())
    dearest = 4.0 * max(1.0, float(market.end.max()))
    for _ in range(2):
        for place in range(len(market.pools)):
            for power in range(24):
                trial = prices.copy()
                trial[place] = dearest / longest * 2.0**-power
                value, _ = market.bound(trial)
                if value < best:
                    best, prices = value, trial
    return prices, best
