"""A store that cannot hurt its caller: calls have a deadline, failures are left alone, all is counted."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, Store, StoreError, StoreStat
from graftline.tiers.store.breaker import Breaker
from graftline.tiers.store.calls import BoundedCalls, CallRefusedError, CallTimeoutError

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

SHORT_TIMEOUTS_MAX = 3
"""So many calls in a row over a deadline shorter than the guard's own count as a failure."""
_ANSWERS = ("full", "refused", "closed")  # reasons that say nothing against the next call


@dataclass(frozen=True, slots=True)
class GuardLimits:
    """What a guarded store may cost.

    Attributes:
        deadline_s: of each call, unless the caller has less time.
        calls_max: calls under way at once, hung ones included; the next is refused at once.
        pause_s: how long the store is left alone after a failure; doubles with each further one.
        pause_s_max: longest pause.
    """

    deadline_s: float = 5.0
    calls_max: int = 8
    pause_s: float = 1.0
    pause_s_max: float = 30.0

    def __post_init__(self) -> None:
        if not (self.deadline_s > 0 and self.calls_max > 0 and 0 < self.pause_s <= self.pause_s_max):
            raise ConfigError(f"limits of a store make no sense: {self}")


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What went through a guarded store since it was opened.

    Attributes:
        url: of the store.
        calls: made, by operation.
        seconds: spent in calls, by operation; a hung call counts up to its deadline.
        errors: calls that failed or were not made, by operation and reason: those of `StoreError`, and
            `left alone` during a pause.
        bad: objects that the reader did not take, by reason.
        hits, misses: objects asked for by get.
        read_bytes, written_bytes: of objects.
        put_objects, dropped_objects: objects given to put, taken and not taken.
        calls_under_way: now, hung ones included.
        left_alone_s: how long the store will still be left alone.
    """

    url: str
    calls: Mapping[str, int]
    seconds: Mapping[str, float]
    errors: Mapping[tuple[str, str], int]
    bad: Mapping[str, int]
    hits: int
    misses: int
    read_bytes: int
    written_bytes: int
    put_objects: int
    dropped_objects: int
    calls_under_way: int
    left_alone_s: float


@dataclass(slots=True)
class _Counts:
    """The changing side of `StoreFigures`."""

    calls: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    objects: Counter[str] = field(default_factory=Counter)
    short_timeouts: int = 0


class GuardedStore:
    """Wraps a store. Raises nothing but `StoreError`, whatever the store does, and not after the deadline.

    What is given to a call that ended with `timeout` belongs to that call: it may still be read.

    Args:
        store: to guard; owned from now on.
        limits: see there.
        clock: seconds for the pauses, never going back.
    """

    def __init__(
        self, store: Store, limits: GuardLimits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.url = store.url
        self._store = store
        self._limits = limits or GuardLimits()
        self._calls = BoundedCalls(f"store {store.url}", self._limits.calls_max)
        self._breaker = Breaker(self._limits.pause_s, self._limits.pause_s_max, clock)
        self._counts = _Counts()
        self._lock = threading.Lock()
        self._closed = False

    def exists(self, keys: Sequence[Key], deadline_s: float | None = None) -> list[bool]:
        """Which objects are there."""
        keys = list(keys)
        return self._call("exists", lambda: _of_length(self._store.exists(keys), keys), deadline_s)

    def get(
        self, keys: Sequence[Key], sizes: Sequence[int], deadline_s: float | None = None
    ) -> list[memoryview]:
        """Objects in memory of their own, cut to the bytes read; an empty one for a missing object.

        Args:
            keys: of the objects.
            sizes: most bytes of each.
            deadline_s: less time than the guard allows.
        """
        keys = list(keys)
        buffers = [np.empty(size, dtype=np.uint8).data for size in sizes]
        filled = self._call("get", lambda: _of_length(self._store.get_into(keys, buffers), keys), deadline_s)
        # A count that cannot be is a miss.
        views = [b[: n if 0 < n <= len(b) else 0] for b, n in zip(buffers, filled, strict=True)]
        with self._lock:
            hits = sum(1 for view in views if len(view))
            self._counts.objects.update(hits=hits, misses=len(views) - hits, read=sum(map(len, views)))
        return views

    def get_into(
        self, keys: Sequence[Key], buffers: Sequence[memoryview], deadline_s: float | None = None
    ) -> list[int]:
        """As `get`, with a copy: a call over its deadline must not write into the caller's memory later."""
        views = self.get(keys, [len(buffer) for buffer in buffers], deadline_s)
        for buffer, view in zip(buffers, views, strict=True):
            buffer[: len(view)] = view
        return [len(view) for view in views]

    def put(
        self, keys: Sequence[Key], values: Sequence[Buffer], deadline_s: float | None = None
    ) -> list[bool]:
        """Writes objects. After `timeout` the values must never be changed again."""
        keys, values = list(keys), list(values)
        taken: list[bool] = []
        try:
            taken = self._call("put", lambda: _of_length(self._store.put(keys, values), keys), deadline_s)
        finally:
            with self._lock:
                sizes = [_bytes_of(v) for v, done in zip(values, taken, strict=False) if done]
                dropped = len(keys) - len(sizes)
                self._counts.objects.update(put=len(sizes), dropped=dropped, written=sum(sizes))
        return taken

    def remove(self, keys: Sequence[Key], deadline_s: float | None = None) -> None:
        """Removes objects."""
        keys = list(keys)
        self._call("remove", lambda: self._store.remove(keys), deadline_s)

    def clear(self, deadline_s: float | None = None) -> None:
        """Removes every object of graftline."""
        self._call("clear", self._store.clear, deadline_s)

    def stat(self, deadline_s: float | None = None) -> StoreStat:
        """Sizes now."""
        return self._call("stat", self._store.stat, deadline_s)

    def close(self) -> None:
        """Closes the store; does not wait for hung calls. May be called twice."""
        with self._lock:
            closed, self._closed = self._closed, True
        if closed:
            return
        try:
            self._calls.run(self._store.close, self._limits.deadline_s)
        except Exception as error:  # noqa: BLE001  a store may raise anything, and closing must end
            self._failed("close", _as_store_error(self.url, error))
        self._calls.stop()

    def count_bad(self, reason: str) -> None:
        """The reader did not take an object."""
        with self._lock:
            self._counts.bad[reason] += 1

    def figures(self) -> StoreFigures:
        """Counters now."""
        with self._lock:
            counts = self._counts
            return StoreFigures(
                url=self.url,
                calls=dict(counts.calls),
                seconds=dict(counts.seconds),
                errors=dict(counts.errors),
                bad=dict(counts.bad),
                hits=counts.objects["hits"],
                misses=counts.objects["misses"],
                read_bytes=counts.objects["read"],
                written_bytes=counts.objects["written"],
                put_objects=counts.objects["put"],
                dropped_objects=counts.objects["dropped"],
                calls_under_way=self._calls.under_way,
                left_alone_s=self._breaker.left_alone_s,
            )

    def _call(self, operation: str, work: Callable[[], Result], deadline_s: float | None) -> Result:
        """Makes one call, or says why not."""
        if self._closed:
            raise self._failed(operation, StoreError("closed", f"store '{self.url}' was closed"))
        trial = self._breaker.enter()
        if trial is None:
            pause_s = self._breaker.left_alone_s
            message = f"store '{self.url}' failed and is left alone for {pause_s:.1f} s"
            error = StoreError("down", message, told="left alone")
            raise self._failed(operation, error, error.told)
        own_s = self._limits.deadline_s
        limit_s = own_s if deadline_s is None else max(0.0, min(own_s, deadline_s))
        began = time.perf_counter()
        try:
            result = self._calls.run(work, limit_s)
        except Exception as error:  # a client may raise anything; it becomes a reason
            known = _as_store_error(self.url, error)
            self._judge(known, trial, short=limit_s < own_s)
            raise self._failed(operation, known) from error
        finally:
            with self._lock:
                self._counts.calls[operation] += 1
                self._counts.seconds[operation] += time.perf_counter() - began
        self._answered(trial)
        return result

    def _judge(self, error: StoreError, trial: bool, *, short: bool) -> None:
        """What an error says about the store."""
        if error.reason in _ANSWERS:
            self._answered(trial)
            return
        with self._lock:
            self._counts.short_timeouts += short and error.reason == "timeout"
            patient = short and self._counts.short_timeouts < SHORT_TIMEOUTS_MAX
        if error.reason == "busy" or (error.reason == "timeout" and patient):
            self._breaker.undecided(trial)
            return
        pause_s = self._breaker.failed(trial)
        if pause_s:
            logger.warning("%s; it is left alone for %.0f s", error.message, pause_s)

    def _answered(self, trial: bool) -> None:
        self._counts.short_timeouts = 0
        if self._breaker.succeeded(trial):
            logger.info("store '%s' answers again", self.url)

    def _failed(self, operation: str, error: StoreError, reason: str = "") -> StoreError:
        """Counts the error and gives it back."""
        with self._lock:
            self._counts.errors[operation, reason or error.reason] += 1
        return error


def _of_length(answers: list[Result], keys: Sequence[Key]) -> list[Result]:
    """An answer for each key, or none is believed."""
    if len(answers) != len(keys):
        raise StoreError("down", f"the store gave {len(answers)} answers to {len(keys)} keys")
    return answers


def _bytes_of(value: Buffer) -> int:
    return memoryview(value).nbytes


def _as_store_error(url: str, error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if isinstance(error, CallTimeoutError):
        return StoreError("timeout", f"store '{url}': {error.message}")
    if isinstance(error, CallRefusedError):
        return StoreError("busy", f"store '{url}': {error.message}")
    return StoreError("down", f"store '{url}': {type(error).__name__}: {error}")
