"""Stores of a running engine: attached, detached, cleared, and given time when it closes."""

from __future__ import annotations

import threading
import time

from graftline.cache import PrefixCache, StoreConfig
from graftline.cache.shelf import Shelf
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.open import open_store, open_stores


def shelf_of(cache: PrefixCache) -> Shelf | None:
    """The stores as the cache uses them; None while it has none."""
    return None if cache.lower is None else cache.lower.shelf


def attach(cache: PrefixCache, url: str) -> None:
    """Begins to use one more store; see `Engine.attach_store`."""
    shelf = shelf_of(cache)
    if shelf is None:
        cache.attach_store(StoreConfig(open_stores([url])))
    else:
        shelf.chain.attach(GuardedStore(open_store(url)))
        shelf.known.clear()


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


def drain(cache: PrefixCache, lock: threading.RLock, bell: threading.Event, seconds: float) -> None:
    """Gives what was kept so long to reach the stores; without one nothing outlives the process anyway."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        bell.clear()
        with lock:
            lower = cache.lower
            if lower is None or lower.shelf is None:
                return
            cache.pump()
            if lower.config.write_policy == "write_back" and lower.pending:
                lower.flush()
            if not lower.busy and not lower.pending:
                return
        bell.wait(left_s)
