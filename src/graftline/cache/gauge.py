"""The speed of the stores, measured as soon as they answer: they may have been down before (rule H-6)."""

from __future__ import annotations

from graftline.cache.shelf import Shelf
from graftline.tiers import Ticket
from graftline.tiers.worth import BreakEven, StoreSpeed, time_store

TRIES_MAX = 4
"""Times that measuring may fail; each is made only after a store has answered."""


class Gauge:
    """Measures one row of stores at most once. Owned by the cache's thread; goes on in the cache's `pump`.

    Args:
        shelf: the stores; what is measured runs on its writing thread.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._tries = 0
        self._ticket: Ticket | None = None
        self._speed: StoreSpeed | None = None

    def step(self, worth: BreakEven) -> BreakEven:
        """The break-even from now on."""
        if worth.store_is_known:
            return worth
        if self._ticket is None:
            self._begin()
        elif self._ticket.done:
            self._ticket = None
            return worth.with_store(self._speed)
        return worth

    def _begin(self) -> None:
        if not self._shelf.answered or self._tries == TRIES_MAX:
            return
        self._shelf.answered = False
        self._ticket = self._shelf.submit(self._measure)
        self._tries += self._ticket is not None

    def _measure(self) -> None:
        self._speed = time_store(self._shelf.chain)
