"""Leaves a store alone after a failure, for twice as long each time, and lets one call try it again."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Breaker:
    """Closed while all is well; after a failure open for `pause_s`, doubling to `pause_s_max`.

    Args:
        pause_s: after the first failure.
        pause_s_max: longest pause.
        clock: seconds, never going back.
    """

    def __init__(self, pause_s: float, pause_s_max: float, clock: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._pause_s_max = pause_s_max
        self._clock = clock
        self._next_pause_s = pause_s
        self._retry_at: float | None = None
        self._trying = False
        self._lock = threading.Lock()

    @property
    def left_alone_s(self) -> float:
        """How long the store will be left alone from now on; 0 when it may be called."""
        retry_at = self._retry_at
        return 0.0 if retry_at is None else max(0.0, retry_at - self._clock())

    def enter(self) -> bool | None:
        """Whether a call may be made: None for no, else whether it is the one that tries the store again.

        Each call that was let in ends with exactly one of `succeeded`, `failed` and `undecided`.
        """
        with self._lock:
            if self._retry_at is None:
                return False
            if self._trying or self._clock() < self._retry_at:
                return None
            self._trying = True
            return True

    def succeeded(self, trial: bool) -> bool:
        """The store answered; returns whether that ended a pause."""
        with self._lock:
            if not trial:
                return False
            self._retry_at, self._trying, self._next_pause_s = None, False, self._pause_s
            return True

    def failed(self, trial: bool) -> float:
        """The store did not answer; returns the pause that begins, 0 when it had begun before."""
        with self._lock:
            if not trial and self._retry_at is not None:
                return 0.0
            pause_s, self._trying = self._next_pause_s, False
            self._retry_at = self._clock() + pause_s
            self._next_pause_s = min(2 * pause_s, self._pause_s_max)
            return pause_s

    def undecided(self, trial: bool) -> None:
        """The call says nothing about the store; the next may try it."""
        with self._lock:
            self._trying = self._trying and not trial
