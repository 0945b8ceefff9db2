"""Several stores in a row, the near one first: read from the first that has a good object, written to all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.guard import GuardedStore, StoreFigures

Result = TypeVar("Result")

Check: TypeAlias = Callable[[int, memoryview], str]
"""Judges an object: its index and its bytes; empty when it is good, else the reason."""


@dataclass(frozen=True, slots=True)
class Got:
    """One object read.

    Attributes:
        data: its bytes, owned by the caller; empty for a miss.
        source: URL of the store that it came from; empty for a miss.
    """

    data: memoryview
    source: str


MISS = Got(memoryview(b""), "")


class ChainStore:
    """A row of guarded stores. One that fails is passed over; its guard counts why.

    A call raises `StoreError` only when every store failed. Without any store everything is missing.

    Args:
        stores: the near one first; owned from now on.
    Raises:
        ConfigError: two of them have the same URL.
    """

    def __init__(self, stores: Sequence[GuardedStore]) -> None:
        self._lock = threading.Lock()
        self._stores: tuple[GuardedStore, ...] = ()
        for store in stores:
            self.attach(store)

    @property
    def url(self) -> str:
        """Those of the stores."""
        return " ".join(store.url for store in self._stores)

    @property
    def stores(self) -> tuple[GuardedStore, ...]:
        """The stores now, the near one first."""
        return self._stores

    def attach(self, store: GuardedStore) -> None:
        """Adds a store at the far end.

        Raises:
            ConfigError: one with this URL is there.
        """
        with self._lock:
            if store.url in [other.url for other in self._stores]:
                raise ConfigError(f"store '{store.url}' is attached already")
            self._stores = (*self._stores, store)

    def detach(self, url: str) -> bool:
        """Takes a store out and closes it; False when there is none with this URL."""
        with self._lock:
            gone = [store for store in self._stores if store.url == url]
            self._stores = tuple(store for store in self._stores if store.url != url)
        for store in gone:
            store.close()
        return bool(gone)

    def exists(
        self, keys: Sequence[Key], deadline_s: float | None = None, faults: set[str] | None = None
    ) -> list[bool]:
        """Which objects are in any store; a farther one is asked only for what the nearer ones lack.

        Args:
            keys: of the objects.
            deadline_s: for all stores together.
            faults: gets the reasons of those that were passed over.
        """
        there = [False] * len(keys)
        asked = _Asked(deadline_s)
        for store in self._stores:
            missing = [i for i, found in enumerate(there) if not found]
            if not missing:
                break
            for i, found in zip(
                missing, asked.of(store.exists, [keys[i] for i in missing]) or (), strict=False
            ):
                there[i] = found
        asked.raise_if_all_failed(faults)
        return there

    def everywhere(self, keys: Sequence[Key], deadline_s: float | None = None) -> list[bool]:
        """Objects that every store has that answers; the others are worth writing."""
        there = [True] * len(keys)
        asked = _Asked(deadline_s)
        for store in self._stores:
            found = asked.of(store.exists, keys)
            if found is not None:
                there = [one and other for one, other in zip(there, found, strict=True)]
        asked.raise_if_all_failed()
        return there

    def get_checked(
        self,
        keys: Sequence[Key],
        sizes: Sequence[int],
        check: Check,
        deadline_s: float | None = None,
        faults: set[str] | None = None,
    ) -> list[Got]:
        """Objects from the first store that has a good one; a bad one is removed where it was.

        Args:
            keys: of the objects.
            sizes: most bytes of each.
            check: judges each object that a store gave.
            deadline_s: for all stores together.
            faults: gets the reasons of the stores that were passed over.
        """
        got = [MISS] * len(keys)
        asked = _Asked(deadline_s)
        for store in self._stores:
            missing = [i for i, one in enumerate(got) if not one.source]
            if not missing:
                break
            views = asked.of(store.get, [keys[i] for i in missing], [sizes[i] for i in missing])
            bad: list[Key] = []
            for i, view in zip(missing, views or (), strict=False):
                reason = check(i, view) if len(view) else ""
                if reason:
                    store.count_bad(reason)
                    bad.append(keys[i])
                elif len(view):
                    got[i] = Got(view, store.url)
            if bad:
                asked.of(store.remove, bad)
        asked.raise_if_all_failed(faults)
        return got

    def fill(self, keys: Sequence[Key], gots: Sequence[Got]) -> None:
        """Writes what came from a farther store into the nearer ones; guards count what fails."""
        places = {store.url: place for place, store in enumerate(self._stores)}
        for place, store in enumerate(self._stores):
            farther = [i for i, got in enumerate(gots) if places.get(got.source, -1) > place]
            if farther:
                _Asked(None).of(store.put, [keys[i] for i in farther], [gots[i].data for i in farther])

    def get_into(
        self, keys: Sequence[Key], buffers: Sequence[memoryview], deadline_s: float | None = None
    ) -> list[int]:
        """Objects as any store gives them, copied; fills the nearer stores at once."""
        gots = self.get_checked(keys, [len(buffer) for buffer in buffers], lambda _i, _data: "", deadline_s)
        for buffer, got in zip(buffers, gots, strict=True):
            buffer[: len(got.data)] = got.data
        self.fill(keys, gots)
        return [len(got.data) for got in gots]

    def put(
        self, keys: Sequence[Key], values: Sequence[Buffer], deadline_s: float | None = None
    ) -> list[bool]:
        """Writes objects to every store; True where any has taken it."""
        taken = [False] * len(keys)
        asked = _Asked(deadline_s)
        for store in self._stores:
            done = asked.of(store.put, keys, values) or taken
            taken = [one or other for one, other in zip(taken, done, strict=True)]
        asked.raise_if_all_failed()
        return taken

    def remove(self, keys: Sequence[Key], deadline_s: float | None = None) -> None:
        """Removes objects from every store."""
        asked = _Asked(deadline_s)
        for store in self._stores:
            asked.of(store.remove, keys)
        asked.raise_if_all_failed()

    def clear(self) -> None:
        """Clears every store.

        Raises:
            StoreError: any store could not be cleared; the others are.
        """
        asked = _Asked(None)
        for store in self._stores:
            asked.of(store.clear)
        asked.raise_if_any_failed()

    def stat(self) -> StoreStat:
        """Sizes of all stores together; -1 where one cannot tell."""
        asked = _Asked(None)
        found = [stat for store in self._stores if (stat := asked.of(store.stat)) is not None]
        asked.raise_if_any_failed()
        columns = zip(*[(s.objects, s.stored_bytes, s.capacity_bytes) for s in found], strict=True)
        sums = [-1 if -1 in column else sum(column) for column in columns]
        return StoreStat(*sums) if sums else StoreStat(0, 0, 0)

    def figures(self) -> tuple[StoreFigures, ...]:
        """Counters of each store, the near one first."""
        return tuple(store.figures() for store in self._stores)

    def close(self) -> None:
        """Closes every store. May be called twice."""
        for store in self._stores:
            store.close()


class _Asked:
    """One call on several stores: the time that is left, and who failed.

    Args:
        deadline_s: for all of them; None leaves each to its guard.
    """

    def __init__(self, deadline_s: float | None) -> None:
        self._end_s = None if deadline_s is None else time.monotonic() + deadline_s
        self._answers = 0
        self._errors: list[StoreError] = []

    def of(self, method: Callable[..., Result], *arguments: object) -> Result | None:
        """The answer of one store; None when it failed, or when the time is over."""
        left_s = None if self._end_s is None else self._end_s - time.monotonic()
        try:
            if left_s is not None and left_s <= 0:
                raise StoreError("timeout", "the time for all stores is over")
            answer = method(*arguments, deadline_s=left_s)
        except StoreError as error:
            self._errors.append(error)
            return None
        self._answers += 1
        return answer

    def raise_if_all_failed(self, faults: set[str] | None = None) -> None:
        """The last error, when there was no answer at all; else `faults` gets the reasons."""
        if self._errors and not self._answers:
            raise self._errors[-1]
        if faults is not None:
            faults.update(error.told for error in self._errors)

    def raise_if_any_failed(self) -> None:
        """The last error."""
        if self._errors:
            raise self._errors[-1]
