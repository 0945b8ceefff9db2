"""A job being done: submits its choices to the engine, and gives out their pieces as they come."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable

from graftline.engine.api import Engine
from graftline.errors import CapacityError, ConfigError, EngineClosedError
from graftline.server.bridge import Arrival, EventQueue
from graftline.server.errors import ApiError, from_engine
from graftline.server.job import Choice, Job, Piece
from graftline.server.metrics import Metrics
from graftline.server.report import first_of, report_line
from graftline.server.tokens import Tokenizer

logger = logging.getLogger(__name__)


class Run:
    """One job on the engine, from `start` to `close`.

    Of several answers to one prompt the first is submitted at once and the others when its first token is
    there: they reuse its prompt in place of computing it beside it.

    Args:
        job: what to do.
        engine: does it.
        tokenizer: makes text of tokens.
        metrics: is told of every token and every end.
        on_close: called once, at the end.
    """

    def __init__(
        self,
        job: Job,
        engine: Engine,
        tokenizer: Tokenizer,
        metrics: Metrics,
        on_close: Callable[[Run], None],
    ) -> None:
        self.job = job
        self._engine = engine
        self._metrics = metrics
        self._on_close = on_close
        self._events = EventQueue()
        self._closed = False
        self.choices = [Choice(i, job, tokenizer) for i in range(len(job.prompts) * job.n)]

    def start(self) -> None:
        """Submits the first answer to each prompt.

        Raises:
            ApiError: the engine refused one; nothing is left behind.
        """
        try:
            for choice in first_of(self.job, self.choices):
                self._submit(choice)
        except BaseException:
            self.close()
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """Pieces of all answers as they come; ends when all answers did.

        Raises:
            ApiError: the engine failed or refused a later answer, or the run was closed by someone else.
        """
        try:
            while not all(choice.finished for choice in self.choices):
                arrival = await self._events.get()
                choice = self.choices[arrival.choice]
                if choice.finished or self._closed:  # what was under way when a stop text or the end came
                    continue
                piece = self._take(choice, arrival)
                if piece is not None:
                    yield piece
        finally:
            self.close()

    def close(self, reason: ApiError | None = None) -> None:
        """Aborts what still runs; the engine gives its slots back. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        self._events.close(reason or ApiError(499, "the client has gone"))
        for choice in self.choices:
            if not choice.finished and choice.engine_id is not None:
                self._engine.abort(choice.engine_id)
                self._metrics.ended("abort", time.perf_counter() - choice.submitted_s)
        logger.debug("%s", report_line(self.job, self.choices))
        self._on_close(self)

    def _submit(self, choice: Choice) -> None:
        choice.submitted_s = time.perf_counter()
        try:
            choice.engine_id = self._engine.submit(
                self.job.engine_request(choice.index), self._events.sink(choice.index)
            )
        except (ConfigError, CapacityError, EngineClosedError) as error:
            self._metrics.ended("refused", 0.0)
            raise from_engine(error) from error

    def _take(self, choice: Choice, arrival: Arrival) -> Piece | None:
        is_first, before_s = choice.first_s == 0.0, choice.last_s
        try:
            piece = choice.take(arrival)
        except ApiError:
            self._metrics.ended(arrival.event.finish_reason or "error", choice.last_s - choice.submitted_s)
            raise
        if is_first:
            self._metrics.first_token(choice.first_s - choice.submitted_s)
            if choice.index % self.job.n == 0:
                for sibling in self.choices[choice.index + 1 : choice.index + self.job.n]:
                    self._submit(sibling)
        elif arrival.event.token is not None:
            self._metrics.next_token(arrival.at_s - before_s)
        if piece is not None and piece.finish is not None:
            self._finish(choice, arrival, piece.finish)
        return piece

    def _finish(self, choice: Choice, arrival: Arrival, outcome: str) -> None:
        self._metrics.ended(outcome, choice.last_s - choice.submitted_s)
        if arrival.event.finish_reason is None and choice.engine_id is not None:
            self._engine.finish(choice.engine_id)  # a stop text, of which the engine knows nothing
