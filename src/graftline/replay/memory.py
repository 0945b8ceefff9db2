"""How much memory a wanted hit rate takes, found by replaying the trace at many sizes.

**Levels.** Device, host and store are nested: what a level holds, the next one holds too. Each is replayed
by itself through the real cache, with every request of the trace, and a request reuses the deepest boundary
that one level has alone. A real boundary may take some components from one level and some from another,
so several components may reuse a little more than is told; one prefix-closed component does not.

**The search.** All pools of the level in question are given the same share of what an endless cache would
hold, and the share is bisected between the sizes of the curve. Then each pool in turn is made as small as
the wish allows with the others left alone. Hit rates may fall here and there as memory grows, when several
components or a policy of its own have a say; so the answer is a size that was replayed and reached the
wish, next to one that was replayed and did not, not the least of all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from graftline.errors import ConfigError
from graftline.plan import Match, Tier
from graftline.policies import Lru
from graftline.replay.compositions import Composition
from graftline.replay.forest import Counts, Passages, passages
from graftline.replay.optimum import clairvoyant
from graftline.replay.simulate import (
    DEFAULT_CHUNK_TOKENS,
    Progress,
    Setup,
    least_slots,
    simulate,
)
from graftline.replay.sweep import Start, SweepPlan, endless_slots, unseen
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, PagedTrace

SHARES = (0.01, 0.02, 0.05, 0.10, 0.20, 0.50, 1.0)
"""Sizes of the curve, as shares of what an endless cache would hold."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked.

    Attributes:
        composition: the model's components.
        hit_rate: wanted share of the prompt tokens, above 0 and at most 1.
        slot_bytes: bytes of a slot, by component; empty when unknown.
        given_bytes: memory of the levels that are decided, the device first; the next one is asked for.
        policy: order of eviction, of every level.
        core: which tree core.
        chunk_tokens: how much of a prompt is computed at once.
        precision: how much larger than a size that is too small the answer may be, as a share.
    """

    composition: Composition
    hit_rate: float
    slot_bytes: Mapping[str, int] = field(default_factory=dict)
    given_bytes: tuple[int, ...] = ()
    policy: str = Lru.name
    core: str = "auto"
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    precision: float = 0.03

    def __post_init__(self) -> None:
        names = {name for name, _ in self.composition.rules}
        if not 0 < self.hit_rate <= 1:
            raise ConfigError(f"hit rate {self.hit_rate} is not above 0 and at most 1")
        if not 0 < self.precision < 1:
            raise ConfigError(f"precision {self.precision} is not between 0 and 1")
        if self.slot_bytes and set(self.slot_bytes) != names:
            raise ConfigError(
                f"bytes are given for {', '.join(sorted(self.slot_bytes))}, the components are"
                f" {', '.join(sorted(names))}",
                hint="tell the bytes of every component, or of none",
            )
        for name, size in self.slot_bytes.items():
            if size < 1:
                raise ConfigError(f"component '{name}': a slot of {size} bytes")
        if self.given_bytes and not self.slot_bytes:
            raise ConfigError("memory in bytes is given, but not how many bytes a token and a state take")
        if list(self.given_bytes) != sorted(self.given_bytes):
            raise ConfigError(
                f"memory of {', '.join(f'{size:,}' for size in self.given_bytes)} bytes: a lower level holds"
                " what the one above holds, and cannot be smaller"
            )
        if len(self.given_bytes) >= len(Tier):
            raise ConfigError(f"{len(self.given_bytes)} levels are given; nothing is left to ask for")

    @property
    def level(self) -> Tier:
        """The level that is asked for."""
        return Tier(len(self.given_bytes))

    def bytes_of(self, slots: Mapping[str, int]) -> int:
        """Bytes of pools; 0 when unknown."""
        return sum(count * self.slot_bytes.get(name, 0) for name, count in slots.items())


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One level: its pools, and the tokens that no level before it had.

    Attributes:
        loaded_tokens: reused tokens that come from this level; for the device, those already there.
        hit_rate: of this level and those before it together.
    """

    tier: Tier
    slots: Mapping[str, int]
    level_bytes: int
    loaded_tokens: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class Tried:
    """One size of the level in question, replayed.

    Attributes:
        hit_rate: of all levels together.
        on_curve: whether it is one of the sizes that are always tried.
    """

    slots: Mapping[str, int]
    level_bytes: int
    hit_rate: float
    on_curve: bool


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """How much memory.

    Attributes:
        ceiling: hit rate of an endless cache with this composition.
        prefix_hit_rate: share of the prompt tokens that any earlier request had, in whole pages.
        working_set: slots that an endless cache would hold in the end, by component.
        levels: those given, and the one found; without the last when it is not needed, or the wish is
            above the ceiling.
        reached: whether the levels reach the wish.
        optimum_slots: for one prefix-closed component on the device: with fewer slots no order of
            eviction reaches the wish; None where that is not known.
        curve: all sizes tried, the smallest first.
    """

    trace: str
    wish: Wish
    page_tokens: int
    requests: int
    prompt_tokens: int
    ceiling: float
    prefix_hit_rate: float
    working_set: Mapping[str, int]
    levels: tuple[LevelFigures, ...]
    reached: bool
    optimum_slots: int | None
    curve: tuple[Tried, ...]


class Trials:
    """Replays of one trace at sizes of the level in question; no size is replayed twice.

    Attributes:
        working_set: slots of an endless cache, by component.
        ceiling: its hit rate.
        tried: what was replayed, by slots.
    """

    def __init__(self, trace: PagedTrace, wish: Wish, progress: Start) -> None:
        self.trace, self.wish, self.progress = trace, wish, progress
        progress("reading", 0)
        self.ahead: Passages = passages(trace)
        self.page_tokens = trace.page_tokens
        self.prompt_tokens = int(self.ahead.prompt_tokens.sum())
        self.least = least_slots(wish.composition, self.page_tokens, wish.chunk_tokens)
        plan = SweepPlan(wish.composition, chunk_tokens=wish.chunk_tokens)
        roomy = endless_slots(plan, self.ahead, self.page_tokens)
        self.working_set, found = self._replay("endless cache", roomy)
        self.ceiling = self.rate(found)
        self.above = np.zeros(self.ahead.requests, dtype=np.int64)
        self.tried: dict[tuple[int, ...], Tried] = {}
        self.found: dict[tuple[int, ...], Counts] = {}

    def rate(self, reused_pages: Counts) -> float:
        """Hit rate of requests that reuse so many pages."""
        return int(reused_pages.sum()) * self.page_tokens / self.prompt_tokens

    def slots_at(self, share: float) -> dict[str, int]:
        """Pools of a share of the endless cache, at least what one request needs; at 1, both."""
        spare = self._own_slots() if share >= 1 else dict.fromkeys(self.least, 0)
        return {
            name: max(self.least[name], ceil(share * held) + spare[name])
            for name, held in self.working_set.items()
        }

    def _own_slots(self) -> dict[str, int]:
        """What one request has besides what the tree holds, at most."""
        path = 2 * int(self.ahead.occupied_pages.max()) + 2
        return {
            name: 4 if rule.holds_state else path if rule.prefix_closed else self.least[name]
            for name, rule in self.wish.composition.rules
        }

    def give(self, level_bytes: int) -> dict[str, int]:
        """Pools for a memory: equal shares of the endless cache.

        Raises:
            ConfigError: one request does not fit.
        """
        wish = self.wish
        least_bytes = wish.bytes_of(self.least)
        if least_bytes > level_bytes:
            raise ConfigError(
                f"{level_bytes} bytes are too few, one request needs {least_bytes} bytes",
                hint="give more memory, or check the bytes of a token and a state",
            )
        low, high = 0.0, max(1.0, level_bytes / max(1, wish.bytes_of(self.working_set)))
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if wish.bytes_of(self.slots_at(middle)) <= level_bytes else (low, middle)
            )
        return self.slots_at(low)

    def pages(self, slots: Mapping[str, int], name: str) -> Counts:
        """Pages that each request reuses of one level with such pools; shape (requests,)."""
        key = tuple(slots.values())
        if key not in self.found:
            _, self.found[key] = self._replay(name, slots)
        return self.found[key]

    def reaches(self, slots: Mapping[str, int], *, on_curve: bool = False) -> bool:
        """Whether the wish is reached with such pools on the level in question."""
        key = tuple(slots.values())
        if key not in self.tried:
            size = self.wish.bytes_of(slots)
            rate = self.rate(np.maximum(self.above, self.pages(slots, told(slots))))
            self.tried[key] = Tried(dict(slots), size, rate, on_curve)
            del self.found[key]  # only the levels that are given are asked for again
        return self.tried[key].hit_rate >= self.wish.hit_rate

    def _replay(self, name: str, slots: Mapping[str, int]) -> tuple[dict[str, int], Counts]:
        wish = self.wish
        setup = Setup(
            wish.composition,
            slots,
            self.page_tokens,
            wish.policy,
            wish.core,
            chunk_tokens=wish.chunk_tokens,
            slot_bytes=wish.slot_bytes,
        )
        reused: list[int] = []

        def observe(paged: PagedRequest, match: Match | None) -> None:  # noqa: ARG001
            reused.append(match.boundary_tokens // KEY_TOKENS if match else 0)

        bar: Progress = self.progress(name, self.ahead.requests)
        figures = simulate(self.trace, setup, bar, observe)
        held = {pool.component: pool.held_slots for pool in figures.pools}
        return held, np.array(reused, dtype=np.int64)


def told(slots: Mapping[str, int]) -> str:
    """Slots in words."""
    return ", ".join(f"{name} {count:,}" for name, count in slots.items())


def plan_memory(trace: PagedTrace, wish: Wish, progress: Start = unseen) -> MemoryAnswer:
    """How much memory of the level in question reaches a hit rate, or that none does.

    Cost: a replay of the trace for each size tried, 15 to 30 of them.
    """
    trials = Trials(trace, wish, progress)
    levels: list[LevelFigures] = []
    for place, level_bytes in enumerate(wish.given_bytes):
        slots = trials.give(level_bytes)
        levels.append(_level(trials, Tier(place), slots, trials.pages(slots, Tier(place).name.lower())))
    reached = bool(levels) and levels[-1].hit_rate >= wish.hit_rate
    if not reached:
        slots_found = _search(trials)
        if slots_found is not None:
            levels.append(_level(trials, wish.level, slots_found, trials.pages(slots_found, "answer")))
            reached = True
    curve = sorted(trials.tried.values(), key=lambda tried: (tried.level_bytes, sum(tried.slots.values())))
    return MemoryAnswer(
        trace=trace.name,
        wish=wish,
        page_tokens=trials.page_tokens,
        requests=trials.ahead.requests,
        prompt_tokens=trials.prompt_tokens,
        ceiling=trials.ceiling,
        prefix_hit_rate=trials.rate(trials.ahead.endless_pages()),
        working_set=trials.working_set,
        levels=tuple(levels),
        reached=reached,
        optimum_slots=_optimum_slots(trials) if wish.level == Tier.DEVICE and reached else None,
        curve=tuple(curve),
    )


def _level(trials: Trials, tier: Tier, slots: Mapping[str, int], pages: Counts) -> LevelFigures:
    """Books a level below those before it."""
    together = np.maximum(trials.above, pages)
    loaded = int((together - trials.above).sum()) * trials.page_tokens
    trials.above = together
    return LevelFigures(tier, dict(slots), trials.wish.bytes_of(slots), loaded, trials.rate(together))


def _search(trials: Trials) -> dict[str, int] | None:
    """The curve, then a bisection between two of its sizes, then each pool alone; None above the ceiling."""
    sizes = [0.0, *SHARES]
    reached = [share for share in sizes if trials.reaches(trials.slots_at(share), on_curve=True)]
    if not reached:
        return None
    high = reached[0]
    low = sizes[max(0, sizes.index(high) - 1)]
    while high - low > trials.wish.precision * high and trials.slots_at(low) != trials.slots_at(high):
        middle = (low + high) / 2
        if trials.slots_at(middle) in (trials.slots_at(low), trials.slots_at(high)):
            break
        low, high = (low, middle) if trials.reaches(trials.slots_at(middle)) else (middle, high)
    slots = trials.slots_at(high)
    names = [name for name in slots if len(slots) > 1]
    for name in sorted(names, key=lambda name: -slots[name] * trials.wish.slot_bytes.get(name, 1)):
        slots = _smaller(trials, slots, name)
    return slots


def _smaller(trials: Trials, slots: Mapping[str, int], name: str) -> dict[str, int]:
    """The pools with one of them made as small as the wish allows."""

    def reaches(count: int) -> bool:
        return trials.reaches({**slots, name: count})

    return {**slots, name: _least(reaches, trials.least[name], slots[name], trials.wish.precision)}


def _optimum_slots(trials: Trials) -> int | None:
    """Slots below which no order of eviction reaches the wish."""
    wish = trials.wish
    if not wish.composition.single_closed:
        return None
    (name,) = trials.least

    def reaches(slots: int) -> bool:
        best = clairvoyant(trials.ahead.served(slots), slots)
        return trials.rate(best.reused_pages) >= wish.hit_rate

    return _least(reaches, trials.least[name], max(trials.slots_at(1.0)[name], 1), wish.precision)


def _least(reaches: Callable[[int], bool], low: int, high: int, precision: float) -> int:
    """A number that reaches, at most `precision` above one that does not; `high` is known to reach."""
    if low >= high or reaches(low):
        return min(low, high)
    while high - low > max(1, precision * high):
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
