"""Calls that may hang, made on threads of their own: a hung one costs its caller no more than a deadline.

A call cannot be ended from outside. One that is over its deadline is left behind on its thread, and its
result is thrown away if it ever comes. The number of calls under way, hung ones included, is bounded: the
next is refused.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from graftline.errors import GraftlineError

Result = TypeVar("Result")


class CallRefusedError(GraftlineError):
    """As many calls as are allowed are under way, or the threads were stopped."""


class CallTimeoutError(GraftlineError):
    """The call is over its deadline; what it was given belongs to it for ever."""


class _Call:
    """One call and its outcome, which is read after `ended`."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.ended = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None


class BoundedCalls:
    """Threads that make calls; started as they are needed, kept until `stop`.

    Args:
        name: of the threads.
        calls_max: most calls under way.
    """

    def __init__(self, name: str, calls_max: int) -> None:
        self._name = name
        self._calls_max = calls_max
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._under_way = 0
        self._stopped = False

    @property
    def under_way(self) -> int:
        """Calls that have not ended, hung ones included."""
        return self._under_way

    def run(self, work: Callable[[], Result], deadline_s: float) -> Result:
        """The result of `work`, or what it raised.

        Raises:
            CallRefusedError: it was not begun.
            CallTimeoutError: it did not end in time, and may go on.
        """
        call = _Call(work)
        self._begin(call)
        if not call.ended.wait(deadline_s):
            raise CallTimeoutError(f"a call took more than {deadline_s:g} s")
        if call.error is not None:
            raise call.error
        return cast("Result", call.result)

    def stop(self) -> None:
        """Takes no more calls; each thread ends after its last one. May be called twice."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                for _ in range(self._threads):
                    self._queue.put(None)

    def _begin(self, call: _Call) -> None:
        with self._lock:
            if self._stopped:
                raise CallRefusedError("the threads were stopped")
            if self._under_way >= self._calls_max:
                raise CallRefusedError(f"{self._under_way} calls are under way already")
            self._under_way += 1
            if self._threads < self._under_way:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._threads += 1
            self._queue.put(call)

    def _serve(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call.result = call.work()
            except BaseException as error:  # noqa: BLE001  handed to the caller; this thread serves on
                call.error = error if isinstance(error, Exception) else RuntimeError(repr(error))
            with self._lock:
                self._under_way -= 1
            call.ended.set()
            del call  # its buffers are not kept until the next one
