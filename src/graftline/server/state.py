"""What one server has: its settings, its engine once that is loaded, and what runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from graftline.engine.api import Engine
from graftline.server.config import ServerConfig
from graftline.server.errors import ApiError, unavailable
from graftline.server.fields import Fields
from graftline.server.job import Job
from graftline.server.metrics import Metrics
from graftline.server.run import Run
from graftline.server.tokens import Tokenizer

logger = logging.getLogger(__name__)


class Phase(Enum):
    """`LOADING` until the engine is there; `DRAINING` finishes what runs; `FAILED` has no engine."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Backend:
    """What answers requests; owned by the server from the start, closed by it at the end."""

    engine: Engine
    tokenizer: Tokenizer


def nothing() -> None:
    """Does nothing."""


class State:
    """The server's own state; used on the event loop only.

    Args:
        config: settings.
        policy: name of the eviction policy, for the figures.

    Attributes:
        stops: how often it was told to stop.
        unwritten: boundaries that did not reach the stores before the end.
    """

    def __init__(self, config: ServerConfig, policy: str = "lru") -> None:
        self.config = config
        self.metrics = Metrics(config.model_names[0], policy)
        self.fields = Fields()
        self.phase = Phase.LOADING
        self.runs: set[Run] = set()
        self.created = int(time.time())
        self.failure: BaseException | None = None
        self.stops = 0
        self.unwritten = 0
        self._hurry: Callable[[], object] = nothing
        self._backend: Backend | None = None

    def ready(self, backend: Backend) -> None:
        """The engine is there."""
        self._backend = backend
        self.metrics.watch(backend.engine.stats)
        if self.phase is Phase.LOADING:
            self.phase = Phase.READY

    def fail(self, error: BaseException) -> None:
        """The engine could not be loaded."""
        self.failure = error
        self.phase = Phase.FAILED

    def drain(self) -> None:
        """Refuses new generation requests from now on; what runs goes on."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.DRAINING

    def stop(self) -> None:
        """A signal, or a call to stop, came: the second hurries. For any thread and for signal handlers."""
        self.stops += 1
        if self.stops > 1:
            self._hurry()

    def on_hurry(self, hurry: Callable[[], object]) -> None:
        """What to do at the second stop; done at once when that has been."""
        self._hurry = hurry
        if self.stops > 1:
            hurry()

    def stop_runs(self) -> int:
        """Ends what still runs; returns how many requests that were."""
        left = list(self.runs)
        for run in left:
            run.close(unavailable("the server stops", "stopping"))
        return len(left)

    @property
    def loaded(self) -> bool:
        """Whether there is an engine."""
        return self._backend is not None

    def backend(self) -> Backend:
        """Engine and tokenizer.

        Raises:
            ApiError: 503 while there are none.
        """
        if self._backend is None:
            failed = self.phase is Phase.FAILED
            raise unavailable(
                "the model could not be loaded" if failed else "the model is being loaded", self.phase.value
            )
        return self._backend

    def admit(self) -> Backend:
        """Engine and tokenizer for a request that generates.

        Raises:
            ApiError: 503 while there are none, and while the server drains.
        """
        if self.phase is Phase.DRAINING:
            raise unavailable("the server is about to stop and takes no new requests", self.phase.value)
        return self.backend()

    def start(self, job: Job) -> Run:
        """Starts a job; the run is among `runs` until it is closed.

        Raises:
            ApiError: the engine refused it, or the server drains.
        """
        backend = self.admit()
        run = Run(job, backend.engine, backend.tokenizer, self.metrics, self.runs.discard)
        self.runs.add(run)
        run.start()
        return run

    def log_prompt(self, job: Job, prompt: str) -> None:
        """Writes a prompt to the log, if that was asked for."""
        if self.config.log_prompts:
            logger.debug("request %s: prompt %r", job.request_id, prompt)

    def check_model(self, name: str | None) -> str:
        """The name under which an answer goes out.

        Raises:
            ApiError: 404, the name is not served.
        """
        if not name:
            return self.config.model_names[0]
        if name not in self.config.model_names:
            served = ", ".join(self.config.model_names)
            raise ApiError(
                404,
                f"the model '{name[:200]}' is not served here; served: {served}",
                "model",
                "model_not_found",
            )
        return name
