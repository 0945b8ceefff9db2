"""Prometheus figures: the engine's counters, read when asked, and times that the server takes."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from graftline.engine.api import EngineStats
from graftline.server.figures import EngineFigures

CONTENT_TYPE = CONTENT_TYPE_LATEST

# Bounds in seconds as vLLM has them, so that its dashboards can be pointed here.
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
NEXT_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    80.0,
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
    *(480.0, 960.0, 1920.0, 7680.0),
)


class Metrics:
    """All figures of one server, in a registry of its own.

    Args:
        model_name: label of every figure.
        policy: name of the eviction policy, label of what is evicted.
    """

    def __init__(self, model_name: str, policy: str) -> None:
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._policy = policy

        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            made = Histogram(
                f"graftline_{name}", text, ["model_name"], registry=self._registry, buckets=bounds
            )
            return made.labels(model_name)

        self._first = histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_S
        )
        self._next = histogram("inter_token_latency_seconds", "From one token to the next.", NEXT_TOKEN_S)
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the end.", REQUEST_S)
        self._ended = Counter(
            "graftline_requests",
            "Sequences by how they ended: stop, length, abort, error, refused.",
            ["model_name", "outcome"],
            registry=self._registry,
        )

    def watch(self, stats: Callable[[], EngineStats]) -> None:
        """Adds the figures of an engine."""
        self._registry.register(EngineFigures(stats, self._model_name, self._policy))

    def first_token(self, seconds: float) -> None:
        """A sequence got its first token, so long after it arrived."""
        self._first.observe(seconds)

    def next_token(self, seconds: float) -> None:
        """A sequence got another token, so long after the one before."""
        self._next.observe(seconds)

    def ended(self, outcome: str, seconds: float) -> None:
        """A sequence ended, so long after it arrived; a refused one has no time."""
        self._ended.labels(self._model_name, outcome).inc()
        if outcome != "refused":
            self._whole.observe(seconds)

    def text(self) -> bytes:
        """Everything in the text format. Asks the engine: call it beside the event loop."""
        return generate_latest(self._registry)
