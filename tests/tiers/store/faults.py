"""A store that misbehaves on purpose, in every way that real ones were seen to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from graftline.tiers.store.base import Buffer, Key, Store, StoreError, StoreStat

READ_FAULTS = ("cut", "flip", "swap", "lose", "long", "junk")
"""What a get can do to an object: cut it, flip a bit, give another key's, give nothing, claim more bytes than
there is room for, fill the buffer with noise."""


class FaultyStore:
    """Wraps a store. `faults[operation]` holds what the next calls do, in order; then `choose` is asked.

    A fault is an exception to raise, or one of the words below; None is a call that goes well.

        hang    waits until `release` is set, then goes on; `entered` tells that it waits
        short   gives an answer too few
        lose    put: says that it wrote; get: gives nothing
        ghost   exists: says that everything is there
        and of `READ_FAULTS` all others, for get
    """

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.inner = store
        self.faults: dict[str, list[object]] = {}
        self.choose: Callable[[str], object] = lambda operation: None
        """Says the fault of a call for which none is listed."""
        self.calls: list[str] = []
        self.entered = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        self.release = threading.Event()
        self._seen: dict[Key, int] = {}  # keys and sizes that were put, for swapping

    def fail(self, operation: str, *faults: object) -> None:
        """What the next calls of an operation do."""
        self.faults.setdefault(operation, []).extend(faults)

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        fault = self._begin("exists")
        there = [True] * len(keys) if fault == "ghost" else self.inner.exists(keys)
        return self._end(fault, there)

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        fault = self._begin("get")
        if fault == "swap":
            keys = [self._other(key) for key in keys]
        filled = self.inner.get_into(keys, buffers)
        if fault == "lose":
            filled = [0] * len(keys)
        elif fault == "cut":
            filled = [size // 2 for size in filled]
        elif fault == "long":
            filled = [len(buffer) + 1 for buffer in buffers]
        elif fault == "flip":
            for buffer, size in zip(buffers, filled, strict=True):
                if size:
                    buffer[size * 2 // 3] ^= 16
        elif fault == "junk":
            for buffer in buffers:
                buffer[:] = bytes(i % 251 for i in range(len(buffer)))
            filled = [len(buffer) for buffer in buffers]
        return self._end(fault, filled)

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        fault = self._begin("put")
        self._seen.update({key: memoryview(value).nbytes for key, value in zip(keys, values, strict=True)})
        done = [True] * len(keys) if fault == "lose" else self.inner.put(keys, values)
        return self._end(fault, done)

    def remove(self, keys: Sequence[Key]) -> None:
        self._end(self._begin("remove"), [])
        self.inner.remove(keys)

    def clear(self) -> None:
        self._end(self._begin("clear"), [])
        self.inner.clear()

    def stat(self) -> StoreStat:
        self._end(self._begin("stat"), [])
        return self.inner.stat()

    def close(self) -> None:
        self._end(self._begin("close"), [])
        self.inner.close()

    def _other(self, key: Key) -> Key:
        """Another key, of an object as large where there is one."""
        size = self._seen.get(key)
        same = [other for other, other_size in self._seen.items() if other != key and other_size == size]
        return same[0] if same else key

    def _begin(self, operation: str) -> object:
        self.calls.append(operation)
        listed = self.faults.get(operation)
        fault = listed.pop(0) if listed else self.choose(operation)
        if isinstance(fault, BaseException):
            raise fault
        if fault == "hang":
            self.entered.release()
            self.release.wait()
        return fault

    def _end(self, fault: object, answers: list) -> list:
        if fault == "hang":
            self.left.release()
        return answers[:-1] if fault == "short" else answers


def down(reason: str = "down") -> StoreError:
    return StoreError(reason, f"the test says {reason}")
