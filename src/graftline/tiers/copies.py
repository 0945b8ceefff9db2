"""A thread that copies, beside the owner of the books."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from graftline.errors import GraftlineError

logger = logging.getLogger("graftline.tiers")


class CopyCancelledError(GraftlineError):
    """The thread was closed before the copy began."""

    reason = told = "closed"


class Ticket:
    """One copy: `done` is true when it ended, well or with `error`. Read by the owner's thread."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether the copy has ended."""
        return self._ended.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; False when the time was over first."""
        return self._ended.wait(timeout_s)

    def end(self, error: BaseException | None = None) -> None:
        """Told by the thread, once."""
        self.error = error
        self._ended.set()


class CopyThread:
    """Runs jobs in the order in which they come; its queue is bounded.

    Args:
        name: of the thread.
        depth: most jobs that wait.
        threads: jobs at once.
        on_done: called on the thread after each job, to wake the owner; must not block.
    """

    def __init__(
        self, name: str, *, depth: int = 64, threads: int = 1, on_done: Callable[[], None] | None = None
    ) -> None:
        self._jobs: deque[tuple[Callable[[], None], Ticket]] = deque()
        self._depth = depth
        self._on_done = on_done
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Jobs that wait. May be out of date at once."""
        return len(self._jobs)

    def submit(self, job: Callable[[], None]) -> Ticket | None:
        """Queues a job; None when the queue is full or the thread was closed."""
        with self._changed:
            if self._closed or len(self._jobs) >= self._depth:
                return None
            ticket = Ticket()
            self._jobs.append((job, ticket))
            self._changed.notify()
            return ticket

    def close(self) -> None:
        """Cancels what waits, lets running jobs end, ends the threads. May be called twice."""
        with self._changed:
            self._closed = True
            waiting, self._jobs = list(self._jobs), deque()
            self._changed.notify_all()
        for _, ticket in waiting:
            ticket.end(CopyCancelledError("the copy thread was closed"))
        for thread in self._threads:
            thread.join()

    def _next(self) -> tuple[Callable[[], None], Ticket] | None:
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            return self._jobs.popleft() if self._jobs else None

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            job, ticket = entry
            try:
                job()
            except GraftlineError as error:  # foreseen: whoever reads the ticket counts it
                logger.debug("a copy between tiers was given up: %s", error.message)
                ticket.end(error)
            except Exception as error:
                logger.warning("a copy between tiers failed", exc_info=True)
                ticket.end(error)
            else:
                ticket.end()
            if self._on_done is not None:
                self._on_done()
