"""Replays a trace at several sizes of the cache, with several policies, beside the optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TypeAlias

from graftline.cache.placement import EVERYWHERE, Placement
from graftline.cache.sessions import SessionLimits
from graftline.errors import ConfigError
from graftline.policies import Lru
from graftline.replay.compositions import Composition
from graftline.replay.cost import CostModel
from graftline.replay.forest import Passages, overlapping_passages, passages
from graftline.replay.loops import Arrivals, Clients, play
from graftline.replay.optimum import clairvoyant
from graftline.replay.prices import Pool, priced_bound
from graftline.replay.simulate import (
    DEFAULT_CHUNK_TOKENS,
    Progress,
    Setup,
    last_turns,
    least_slots,
    no_progress,
    simulate,
)
from graftline.replay.tally import RunFigures
from graftline.replay.tokens import PagedTrace

DEFAULT_CAPACITIES = (0.01, 0.05, 0.10, 0.25, 0.50)
EXACT, BOUND = "exact", "bound"

Loop: TypeAlias = Arrivals | Clients | None
"""None stands for one request at a time."""
Start: TypeAlias = Callable[[str, int], Progress]
"""Told the name and the number of requests of each run, 0 when unknown; gives what is told of them."""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is replayed.

    Attributes:
        composition: the model's components.
        policies: orders of eviction, by name.
        capacities: sizes of every pool, as shares of what an endless cache would hold in it.
        slots: sizes of pools in slots; when given, this is the one size, and `capacities` is unused.
        loop: when requests come.
        running_max: most requests at once, in a loop.
        cost: how long things take.
        core: which tree core.
        chunk_tokens: how much of a prompt is computed at once.
        with_optimum: whether the optimum is asked for.
        sessions: whether the cache is told of the sessions that the trace names.
        session_ttl_s: how long an idle session stays open.
        infer_sessions: whether the cache infers the sessions that it is not told of.
        close_sessions: whether each session is closed after its last request, as its client could do.
        placement: which boundaries get windows and checkpoints.
    """

    composition: Composition
    policies: Sequence[str] = (Lru.name,)
    capacities: Sequence[float] = DEFAULT_CAPACITIES
    slots: Mapping[str, int] = field(default_factory=dict)
    loop: Loop = None
    running_max: int = 64
    cost: CostModel = field(default_factory=CostModel)
    core: str = "auto"
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    with_optimum: bool = True
    sessions: bool = True
    session_ttl_s: float = SessionLimits().ttl_s
    placement: Placement = EVERYWHERE
    infer_sessions: bool = True
    close_sessions: bool = False

    def __post_init__(self) -> None:
        names = {name for name, _ in self.composition.rules}
        if self.slots and set(self.slots) != names:
            raise ConfigError(
                f"slots are given for {', '.join(sorted(self.slots))}, the components are"
                f" {', '.join(sorted(names))}",
                hint="give slots to every component, or to none",
            )
        for capacity in self.capacities:
            if not 0 < capacity <= 1:
                raise ConfigError(f"capacity {capacity} is not above 0 and at most 1 of the working set")

    def setup(self, slots: Mapping[str, int], page_tokens: int, policy: str = Lru.name) -> Setup:
        """The cache at one size."""
        return Setup(
            self.composition,
            slots,
            page_tokens,
            policy,
            self.core,
            self.cost,
            self.chunk_tokens,
            sessions=self.sessions,
            session_ttl_s=self.session_ttl_s,
            placement=self.placement,
            infer_sessions=self.infer_sessions,
        )


@dataclass(frozen=True, slots=True)
class OptimumFigures:
    """The clairvoyant optimum at one size.

    Attributes:
        kind: `exact` when it can be reached, `bound` when it is only known that nobody does better.
        reused_tokens: tokens that the optimum would not compute again.
        hit_rate: share of the prompt tokens.
    """

    kind: str
    reused_tokens: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One run.

    Attributes:
        capacity: share of the working set, or None when slots were given.
        optimum: None when it was not asked for.
    """

    policy: str
    capacity: float | None
    slots: Mapping[str, int]
    figures: RunFigures
    optimum: OptimumFigures | None

    @property
    def share_of_optimum(self) -> float | None:
        """What was reused, over what could have been."""
        if self.optimum is None:
            return None
        return self.figures.reused_tokens / self.optimum.reused_tokens if self.optimum.reused_tokens else 1.0


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A trace and its runs.

    Attributes:
        working_set: slots that an endless cache would hold in the end, by component.
        endless_hit_rate: of an endless cache with this composition, through the real core.
        prefix_hit_rate: share of the prompt tokens that any earlier request had, in whole pages.
    """

    trace: str
    composition: str
    page_tokens: int
    requests: int
    prompt_tokens: int
    working_set: Mapping[str, int]
    endless_hit_rate: float
    prefix_hit_rate: float
    loop: Loop
    cost: CostModel
    points: tuple[SweepPoint, ...]


def sized(trace: PagedTrace, plan: SweepPlan, progress: Start) -> dict[str, int]:
    """The slots of a plan's first size; replays an endless cache when they are not given."""
    if plan.slots:
        return dict(plan.slots)
    progress("reading", 0)
    ahead = passages(trace)
    page_tokens = trace.page_tokens
    roomy = plan.setup(endless_slots(plan, ahead, page_tokens), page_tokens)
    endless = simulate(trace, roomy, progress("endless cache", ahead.requests))
    held = {pool.component: pool.held_slots for pool in endless.pools}
    _, slots = next(sizes(plan, held, page_tokens))
    return slots


def unseen(name: str, requests: int) -> Progress:  # noqa: ARG001
    """Shows nothing."""
    return no_progress


def sweep(trace: PagedTrace, plan: SweepPlan, progress: Start = unseen) -> SweepResult:
    """Replays a trace as planned.

    Args:
        trace: the requests.
        plan: what is replayed.
        progress: called before each run; gives what is told of its requests.
    """
    progress("reading", 0)
    ahead = passages(trace)
    page_tokens, prompt_tokens = trace.page_tokens, int(ahead.prompt_tokens.sum())
    slots = endless_slots(plan, ahead, page_tokens)
    endless = simulate(trace, plan.setup(slots, page_tokens), progress("endless cache", ahead.requests))
    working_set = {pool.component: pool.held_slots for pool in endless.pools}
    closing = last_turns(trace) if plan.close_sessions else {}
    points: list[SweepPoint] = []
    for capacity, slots in sizes(plan, working_set, page_tokens):
        shared: OptimumFigures | None = None
        for policy in plan.policies:
            where = "given slots" if capacity is None else f"{capacity:.0%}"
            setup = replace(plan.setup(slots, page_tokens, policy), last_turns=closing)
            bar = progress(f"{policy}, {where}", ahead.requests)
            figures, order = run(trace, setup, plan, ahead, bar)
            if plan.with_optimum and (shared is None or order is not ahead):
                shared = optimum(order, setup, prompt_tokens, overlapping=plan.loop is not None)
            points.append(SweepPoint(policy, capacity, slots, figures, shared))
    return SweepResult(
        trace=trace.name,
        composition=plan.composition.name,
        page_tokens=page_tokens,
        requests=ahead.requests,
        prompt_tokens=prompt_tokens,
        working_set=working_set,
        endless_hit_rate=endless.hit_rate,
        prefix_hit_rate=int(ahead.endless_pages().sum()) * page_tokens / prompt_tokens,
        loop=plan.loop,
        cost=plan.cost,
        points=tuple(points),
    )


def run(
    trace: PagedTrace, setup: Setup, plan: SweepPlan, ahead: Passages, progress: Progress
) -> tuple[RunFigures, Passages]:
    """One run, and the passages in the order in which it took them."""
    if plan.loop is None:
        return simulate(trace, setup, progress), ahead
    figures, steps = play(trace, setup, plan.loop, running_max=plan.running_max, progress=progress)
    return figures, overlapping_passages(steps) if plan.with_optimum else ahead


def endless_slots(plan: SweepPlan, ahead: Passages, page_tokens: int) -> dict[str, int]:
    """Slots that can never run out: every page of the trace, and what one request has besides."""
    pages = ahead.pages + 2 * int(ahead.occupied_pages.max()) + 2
    least = least_slots(plan.composition, page_tokens, plan.chunk_tokens)
    stops = pages if plan.placement.grid_tokens else 6 * ahead.requests  # else at most five a request
    states = min(pages, stops) + 4
    return {
        name: max(least[name], states if rule.holds_state else pages) for name, rule in plan.composition.rules
    }


def sizes(
    plan: SweepPlan, working_set: Mapping[str, int], page_tokens: int
) -> Iterator[tuple[float | None, dict[str, int]]]:
    """Capacities and the slots they stand for; never less than one request needs."""
    if plan.slots:
        yield None, dict(plan.slots)
        return
    least = least_slots(plan.composition, page_tokens, plan.chunk_tokens)
    for capacity in plan.capacities:
        yield (
            capacity,
            {name: max(least[name], ceil(capacity * held)) for name, held in working_set.items()},
        )


def optimum(ahead: Passages, setup: Setup, prompt_tokens: int, *, overlapping: bool) -> OptimumFigures:
    """The optimum at one size: exact for one prefix-closed component, else the least of the known bounds.

    Where requests overlap it is a bound too, as what they hold meanwhile is left out.
    """
    rules, slots = setup.composition.rules, setup.slots
    closed = [slots[name] for name, rule in rules if rule.prefix_closed]
    served = ahead.served(min(closed)) if closed else ahead
    bounds = [int(served.endless_pages().sum())]
    kind = BOUND
    for capacity in closed:
        best = clairvoyant(served, capacity)
        bounds.append(int(best.reused_pages.sum()))
        if setup.composition.single_closed and best.exact and not overlapping:
            kind = EXACT
    if not setup.composition.single_closed:
        pools = [Pool(rule, slots[name]) for name, rule in rules]
        bounds.append(priced_bound(served, pools, setup.page_tokens))
    reused_tokens = min(bounds) * setup.page_tokens
    return OptimumFigures(kind, reused_tokens, reused_tokens / prompt_tokens)
