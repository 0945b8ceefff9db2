"""A store inside the process: bounded, least recently used leaves first. For tests and trying out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.local import parse_local_url


class MemoryStore:
    """Objects as bytes in a dictionary.

    Args:
        capacity_bytes: most bytes of objects.
        url: as it was opened.
    """

    def __init__(self, capacity_bytes: int, url: str = "memory:") -> None:
        self.url = url
        self._capacity_bytes = capacity_bytes
        self._objects: OrderedDict[Key, bytes] = OrderedDict()
        self._stored_bytes = 0
        self._closed = False
        self._lock = threading.Lock()

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """Which objects are there; counts no use."""
        with self._lock:
            self._check_open()
            return [key in self._objects for key in keys]

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """Copies objects out; 0 for a missing one and for one that does not fit."""
        with self._lock:
            self._check_open()
            return [self._get(key, buffer) for key, buffer in zip(keys, buffers, strict=True)]

    def _get(self, key: Key, buffer: memoryview) -> int:
        value = self._objects.get(key, b"")
        if not value or len(value) > len(buffer):
            return 0
        self._objects.move_to_end(key)
        buffer[: len(value)] = value
        return len(value)

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """Keeps copies; False for one that is larger than the whole store."""
        with self._lock:
            self._check_open()
            return [self._put(key, bytes(value)) for key, value in zip(keys, values, strict=True)]

    def _put(self, key: Key, value: bytes) -> bool:
        self._drop(key)
        if len(value) > self._capacity_bytes:
            return False
        self._objects[key] = value
        self._stored_bytes += len(value)
        while self._stored_bytes > self._capacity_bytes:
            self._drop(next(iter(self._objects)))
        return True

    def _drop(self, key: Key) -> None:
        self._stored_bytes -= len(self._objects.pop(key, b""))

    def remove(self, keys: Sequence[Key]) -> None:
        """Removes objects."""
        with self._lock:
            self._check_open()
            for key in keys:
                self._drop(key)

    def clear(self) -> None:
        """Removes everything."""
        with self._lock:
            self._check_open()
            self._objects.clear()
            self._stored_bytes = 0

    def stat(self) -> StoreStat:
        """Sizes now."""
        with self._lock:
            return StoreStat(len(self._objects), self._stored_bytes, self._capacity_bytes)

    def close(self) -> None:
        """Lets go of everything."""
        with self._lock:
            self._closed = True
            self._objects.clear()
            self._stored_bytes = 0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("closed", f"store '{self.url}' was closed")


def open_memory(url: str) -> MemoryStore:
    """A store inside the process: `memory:?size=1GB`.

    Raises:
        ConfigError: the URL makes no sense.
    """
    parts = parse_local_url(url, "memory")
    parts.arguments_only(["size"])
    if parts.path:
        raise ConfigError(f"store '{url}' has a name, which 'memory:' does not take")
    return MemoryStore(parts.bytes_("size", 10**9, 1), url)
