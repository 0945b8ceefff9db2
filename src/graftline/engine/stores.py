"""Stores of a running engine: attached, detached, cleared, and given time when it closes."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from graftline.cache import PrefixCache, StoreConfig
from graftline.cache.shelf import Shelf
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.open import open_store, open_stores

logger = logging.getLogger("graftline.engine")

HURRY_S = 0.5
"""How long a closing that is hurried waits for threads that are about to end."""


def shelf_of(cache: PrefixCache) -> Shelf | None:
    """The stores as the cache uses them; None while it has none."""
    return None if cache.lower is None else cache.lower.shelf


def attach(cache: PrefixCache, url: str, *, measure: bool) -> None:
    """Begins to use one more store; see `Engine.attach_store`.

    Args:
        cache: which shall use it.
        url: of the store.
        measure: whether its speed is measured, as those of stores at start are.
    """
    shelf = shelf_of(cache)
    if shelf is None:
        cache.attach_store(StoreConfig(open_stores([url])))
    else:
        shelf.chain.attach(GuardedStore(open_store(url)))
        shelf.known.clear()
    if measure and cache.lower is not None:
        cache.lower.measure_store()


def detach(cache: PrefixCache, url: str) -> bool:
    """Stops to use a store; see `Engine.detach_store`."""
    shelf = shelf_of(cache)
    if shelf is None or url not in [store.url for store in shelf.chain.stores]:
        return False
    if len(shelf.chain.stores) == 1:
        cache.detach_store()
    else:
        shelf.chain.detach(url)
        shelf.known.clear()
    return True


def clear(shelf: Shelf) -> None:
    """Empties every store. For any thread.

    Raises:
        StoreError: one could not be cleared; the others are.
    """
    try:
        shelf.chain.clear()
    finally:
        shelf.known.clear()


@dataclass(frozen=True, slots=True)
class Closing:
    """How an engine closes.

    Attributes:
        lock: protects the cache.
        bell: rung when a copy has ended, and when `hurried` is set.
        hurried: set to wait no longer for stores.
    """

    lock: threading.RLock
    bell: threading.Event
    hurried: threading.Event

    def drain(self, cache: PrefixCache, seconds: float) -> int:
        """Gives what was kept so long to reach the stores; returns how many boundaries did not.

        Without a store nothing outlives the process anyway.
        """
        end_s = time.monotonic() + seconds
        while True:
            self.bell.clear()
            with self.lock:
                lower = cache.lower
                if lower is None or lower.shelf is None:
                    return 0
                cache.pump()
                if lower.config.write_policy == "write_back" and lower.pending:
                    lower.copy_down()
                left, moving = lower.unwritten, lower.busy
            left_s = end_s - time.monotonic()
            if self.hurried.is_set() or left_s <= 0 or not (left or moving):
                break
            self.bell.wait(min(left_s, threading.TIMEOUT_MAX))
        if left:
            why = "closing was cut short" if self.hurried.is_set() else f"{seconds:g} s were not enough"
            logger.warning("%s: %d boundaries that were kept are not in the stores", why, left)
        return left

    def close(self, cache: PrefixCache) -> None:
        """Closes the cache, on a thread: when hurried, a call of a store that hangs is not waited for."""
        ended = threading.Event()

        def work() -> None:
            try:
                with self.lock:
                    cache.close()
            finally:
                ended.set()
                self.bell.set()

        threading.Thread(target=work, name="graftline-closing", daemon=True).start()
        while not (ended.is_set() or self.hurried.is_set()):
            self.bell.wait()
            self.bell.clear()
        ended.wait(HURRY_S if self.hurried.is_set() else None)
