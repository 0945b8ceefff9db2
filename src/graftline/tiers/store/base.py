"""What a store must answer: batches of opaque objects under 32-byte keys.

A store knows nothing of tokens or rules. It may lose, cut or mix up what it was given: whoever reads an
object checks it (`objects.py`), and a wrong one is a counted miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from graftline.errors import GraftlineError

Key: TypeAlias = bytes
"""32 bytes, never cut."""
Buffer: TypeAlias = bytes | bytearray | memoryview


class StoreError(GraftlineError):
    """A store did not do what was asked; the caller goes on without it.

    Args:
        reason: one word for counters: `down`, `timeout`, `full`, `refused`, `busy` or `closed`.
        told: what a request is told in its place; the reason by default, `left alone` during a pause.
    """

    def __init__(self, reason: str, message: str, *, hint: str = "", told: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.told = told or reason


@dataclass(frozen=True, slots=True)
class StoreStat:
    """Sizes of a store; -1 where it cannot tell."""

    objects: int
    stored_bytes: int
    capacity_bytes: int


class Store(Protocol):
    """A store of objects. Every call is a batch; any thread may call; no call changes the lists it is given.

    A call that cannot be carried out raises `StoreError`; a single object missing or refused does not.
    """

    url: str
    """As it was opened, without passwords."""

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """Which objects are there. What it says may be out of date by the time of `get_into`."""

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """Reads each object into its writable buffer; returns the bytes written.

        0 stands for a missing object, and for one that does not fit its buffer.
        """

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """Writes objects; True where the object is there afterwards. One that is there may be kept."""

    def remove(self, keys: Sequence[Key]) -> None:
        """Removes objects; missing ones are ignored."""

    def clear(self) -> None:
        """Removes every object of graftline in this store."""

    def stat(self) -> StoreStat:
        """Sizes now."""

    def close(self) -> None:
        """Lets go of files and connections. May be called twice."""
