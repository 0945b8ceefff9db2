"""What moves between tiers, and what stores do, as Prometheus figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from graftline.cache.flow import Flow
from graftline.engine.api import EngineStats
from graftline.tiers.store.guard import StoreFigures


def tier_figures(flow: Flow, model_name: str) -> Iterator[Metric]:
    """Bytes and pages that moved, the time it took, and what was given up by its reason."""
    way = ["source", "target"]
    moved_bytes = _counter("tier_bytes", "Bytes that moved between tiers.", ["component", *way])
    moved_pages = _counter(
        "tier_pages", "Pages that moved between tiers; objects, on the way to a store.", ["component", *way]
    )
    for (component, source, target), count in flow.pages.items():
        labels = [model_name, component, source.name.lower(), target.name.lower()]
        moved_pages.add_metric(labels, count)
        moved_bytes.add_metric(labels, flow.bytes[component, source, target])
    seconds = _counter("tier_seconds", "Time spent copying between tiers.", way)
    for (source, target), spent in flow.seconds.items():
        seconds.add_metric([model_name, source.name.lower(), target.name.lower()], spent)
    dropped = _counter("tier_dropped", "Moves between tiers that were given up.", [*way, "reason"])
    for (source, target, reason), count in flow.dropped.items():
        dropped.add_metric([model_name, source.name.lower(), target.name.lower(), reason], count)
    yield from (moved_bytes, moved_pages, seconds, dropped)


def shortfall_figures(stats: EngineStats, model_name: str) -> Iterator[Metric]:
    """Requests that a tier had more for than they got, and how much more."""
    requests = _counter("tier_shortfalls", "Requests that a tier had more for.", ["tier", "reason"])
    tokens = _counter(
        "tier_lost_tokens", "Tokens that a tier had and that were computed.", ["tier", "reason"]
    )
    for (tier, reason), count in stats.shortfalls.items():
        labels = [model_name, tier.name.lower(), reason]
        requests.add_metric(labels, count)
        tokens.add_metric(labels, stats.shortfall_tokens[tier, reason])
    yield from (requests, tokens)


def store_figures(stores: Iterable[StoreFigures], model_name: str) -> Iterator[Metric]:
    """Calls, their time and their faults, objects found and not found, by store."""
    calls = _counter("store_calls", "Calls of a store.", ["store", "operation"])
    seconds = _counter("store_seconds", "Time spent in calls of a store.", ["store", "operation"])
    faults = _counter(
        "store_faults", "Failed calls, and objects that were not good.", ["store", "operation", "reason"]
    )
    objects = _counter("store_objects", "Objects asked for.", ["store", "found"])
    moved = _counter("store_bytes", "Bytes of objects.", ["store", "direction"])
    left_alone = GaugeMetricFamily(
        "graftline_store_left_alone_seconds",
        "How long a store that failed is still left alone.",
        labels=["model_name", "store"],
    )
    for store in stores:
        name = [model_name, store.url]
        for operation, count in store.calls.items():
            calls.add_metric([*name, operation], count)
        for operation, spent in store.seconds.items():
            seconds.add_metric([*name, operation], spent)
        for (operation, reason), count in store.errors.items():
            faults.add_metric([*name, operation, reason], count)
        for reason, count in store.bad.items():
            faults.add_metric([*name, "read", reason], count)
        objects.add_metric([*name, "yes"], store.hits)
        objects.add_metric([*name, "no"], store.misses)
        moved.add_metric([*name, "read"], store.read_bytes)
        moved.add_metric([*name, "written"], store.written_bytes)
        left_alone.add_metric(name, store.left_alone_s)
    yield from (calls, seconds, faults, objects, moved, left_alone)


def _counter(name: str, text: str, labels: list[str]) -> CounterMetricFamily:
    return CounterMetricFamily(f"graftline_{name}", text, labels=["model_name", *labels])
