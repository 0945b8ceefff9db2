"""The engine's counters as Prometheus figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from graftline.engine.api import EngineStats, PoolUse
from graftline.server.tier_figures import shortfall_figures, store_figures, tier_figures

DEVICE, HOST = "device", "host"


def reused_by_tier(stats: EngineStats) -> dict[str, int]:
    """Reused tokens by the tier in which they lay when the request came."""
    device = stats.reused_tokens - stats.host_tokens - stats.store_tokens
    return {DEVICE: device, HOST: stats.host_tokens, "store": stats.store_tokens}


class EngineFigures(Collector):
    """Counters and sizes of an engine, one snapshot each time they are asked for.

    Args:
        stats: gives the snapshot.
        model_name: label of every figure.
        policy: name of the eviction policy.
    """

    def __init__(self, stats: Callable[[], EngineStats], model_name: str, policy: str) -> None:
        self._stats = stats
        self._model_name = model_name
        self._policy = policy

    def describe(self) -> list[Metric]:
        """Nothing: names are not checked against the registry, so that the engine isn't asked at start."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One snapshot of the engine."""
        stats = self._stats()
        yield from self._requests(stats)
        yield from self._tokens(stats)
        yield from self._slots({DEVICE: stats.pools, HOST: stats.host_pools})
        yield from self._evictions(stats)
        yield self._gauge("sessions_open", "Sessions that are open.", stats.sessions)
        coalesced = stats.coalesced_tokens
        yield self._counter("coalesced_tokens", "Reused tokens that another request computed.", coalesced)
        if stats.flow is not None:
            yield from tier_figures(stats.flow, self._model_name)
            yield from shortfall_figures(stats, self._model_name)
        yield from store_figures(stats.stores, self._model_name)

    def _requests(self, stats: EngineStats) -> Iterator[Metric]:
        yield self._gauge("requests_running", "Sequences being computed.", stats.running)
        yield self._gauge("requests_waiting", "Sequences that wait.", stats.waiting)
        yield self._counter(
            "preemptions", "Sequences that gave everything back and waited again.", stats.preemptions
        )

    def _tokens(self, stats: EngineStats) -> Iterator[Metric]:
        reused = reused_by_tier(stats)
        by_source = {"computed": stats.computed_tokens, **reused}
        yield self._counter(
            "prompt_tokens", "Tokens of prompts by where they came from.", by_source, "source"
        )
        yield self._counter("reused_tokens", "Tokens of prompts that were not computed.", reused, "tier")
        yield self._counter("generation_tokens", "Tokens generated.", stats.generated_tokens)
        lost = CounterMetricFamily(
            "graftline_boundary_lost_tokens",
            "Tokens that the tree knew and that were computed all the same.",
            labels=["model_name", "component", "reason"],
        )
        for (component, reason), tokens in stats.lost_tokens.items():
            lost.add_metric([self._model_name, component, reason], tokens)
        yield lost

    def _slots(self, tiers: Mapping[str, tuple[PoolUse, ...]]) -> Iterator[Metric]:
        slots = GaugeMetricFamily(
            "graftline_slots",
            "Slots by state; free, held and private ones add up to the capacity.",
            labels=["model_name", "component", "tier", "state"],
        )
        sizes: dict[str, tuple[str, Callable[[PoolUse], int]]] = {
            "slots_capacity": ("Slots there are.", lambda pool: pool.capacity),
            "slots_used": ("Slots not free.", lambda pool: pool.capacity - pool.free),
            "slots_leased": ("Held slots that running requests need.", lambda pool: pool.leased),
        }
        families = {
            name: GaugeMetricFamily(f"graftline_{name}", text, labels=["model_name", "component", "tier"])
            for name, (text, _) in sizes.items()
        }
        for tier, pools in tiers.items():
            for pool in pools:
                for state, count in (("free", pool.free), ("held", pool.held), ("private", pool.private)):
                    slots.add_metric([self._model_name, pool.component, tier, state], count)
                for name, (_, count_of) in sizes.items():
                    families[name].add_metric([self._model_name, pool.component, tier], count_of(pool))
        yield slots
        yield from families.values()

    def _evictions(self, stats: EngineStats) -> Iterator[Metric]:
        skipped = stats.skipped_checkpoints
        yield self._counter("skipped_checkpoints", "Checkpoints not kept for want of a slot.", skipped)
        evicted = CounterMetricFamily(
            "graftline_evicted_slots",
            "Slots whose value was evicted.",
            labels=["model_name", "component", "tier", "policy"],
        )
        for component, count in stats.evicted_slots.items():
            evicted.add_metric([self._model_name, component, DEVICE, self._policy], count)
        yield evicted

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"graftline_{name}", text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _counter(
        self, name: str, text: str, values: Mapping[str, int] | int, label: str | None = None
    ) -> Metric:
        family = CounterMetricFamily(
            f"graftline_{name}", text, labels=["model_name", label] if label else ["model_name"]
        )
        for key, value in (values if isinstance(values, Mapping) else {"": values}).items():
            family.add_metric([self._model_name, key] if label else [self._model_name], value)
        return family
