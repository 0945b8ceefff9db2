"""What an engine counts."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field

from graftline.cache import PrefixCache
from graftline.engine.api import EngineStats, PoolUse, ReuseReport
from graftline.engine.scheduler import Scheduler
from graftline.plan import Tier


@dataclass(slots=True)
class Tallies:
    """Counters since the start; read and written under the engine's lock.

    Attributes:
        tokens: by what became of them.
        outcomes: requests by how they ended.
        lost: tokens by the component and the reason that cost them.
        shortfalls, shortfall_tokens: requests that got less than a tier below had, and how much less, by tier
            and reason.
    """

    tokens: Counter[str] = field(default_factory=Counter)
    coalesced_requests: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    shortfalls: Counter[tuple[Tier, str]] = field(default_factory=Counter)
    shortfall_tokens: Counter[tuple[Tier, str]] = field(default_factory=Counter)

    def admitted(self, reuse: ReuseReport) -> None:
        """A request began to run, for the first time."""
        self.tokens["prompt"] += reuse.prompt_tokens
        self.tokens["reused"] += reuse.reused_tokens
        self.tokens["host"] += reuse.host_tokens
        self.tokens["store"] += reuse.store_tokens
        self.tokens["coalesced"] += reuse.coalesced_tokens
        self.coalesced_requests += reuse.coalesced_tokens > 0
        if reuse.lost_tokens:
            self.lost[reuse.limited_by, reuse.reason] += reuse.lost_tokens
        for short in reuse.shortfalls:
            self.shortfalls[short.tier, short.reason] += 1
            self.shortfall_tokens[short.tier, short.reason] += short.lost_tokens or 0

    def stats(self, scheduler: Scheduler, cache: PrefixCache) -> EngineStats:
        """The counters, and the sizes of everything now."""
        lower = cache.lower
        return EngineStats(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            prompt_tokens=self.tokens["prompt"],
            reused_tokens=self.tokens["reused"],
            computed_tokens=self.tokens["prompt"] - self.tokens["reused"],
            generated_tokens=self.tokens["generated"],
            preemptions=scheduler.preemptions,
            requests=dict(self.outcomes),
            lost_tokens=dict(self.lost),
            skipped_checkpoints=cache.skipped_checkpoints,
            evicted_slots=dict(cache.evicted_slots),
            pools=pool_uses(cache),
            host_pools=pool_uses(cache, Tier.HOST),
            flow=deepcopy(lower.flow) if lower else None,
            stores=lower.shelf.chain.figures() if lower and lower.shelf else (),
            host_tokens=self.tokens["host"],
            store_tokens=self.tokens["store"],
            sessions=cache.core.stats().sessions,
            coalesced_requests=self.coalesced_requests,
            coalesced_tokens=self.tokens["coalesced"],
            shortfalls=dict(self.shortfalls),
            shortfall_tokens=dict(self.shortfall_tokens),
            break_even=lower.worth if lower else None,
        )


def pool_uses(cache: PrefixCache, tier: Tier = Tier.DEVICE) -> tuple[PoolUse, ...]:
    """Owners of all slots of a tier, with the bytes of one slot; nothing for a tier that is not there."""
    bytes_of = {spec.name: spec.slot_bytes for spec in cache.components}
    if tier is Tier.DEVICE:
        uses = cache.uses()
    else:
        uses = cache.lower.host.uses() if cache.lower is not None and tier is Tier.HOST else ()
    return tuple(
        PoolUse(u.component, u.capacity, u.free, u.held, u.leased, u.private, bytes_of[u.component])
        for u in uses
    )
