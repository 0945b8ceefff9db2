"""Who owns each slot of a pool: nobody, a request, or the tree."""

from __future__ import annotations

import numpy as np

from graftline.errors import IntegrityError
from graftline.plan import Slots

FREE, PRIVATE, HELD = 0, 1, 2


class SlotLedger:
    """Owners of one component's slots; a slot that changes hands wrongly is an error at once (rule C-1).

    Args:
        component: name, for messages.
        capacity: number of slots.
    """

    def __init__(self, component: str, capacity: int) -> None:
        self.component = component
        self.capacity = capacity
        self._owner = np.zeros(capacity, dtype=np.uint8)
        self._free = np.arange(capacity - 1, -1, -1, dtype=np.int32)
        self._free_count = capacity
        self._held_count = 0

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return self._free_count

    @property
    def held(self) -> int:
        """Slots that the tree owns."""
        return self._held_count

    @property
    def private(self) -> int:
        """Slots that requests own."""
        return self.capacity - self._free_count - self._held_count

    def take(self, count: int) -> Slots:
        """Gives `count` free slots to a request; the caller has made sure that there are enough."""
        assert count <= self._free_count
        self._free_count -= count
        slots = self._free[self._free_count : self._free_count + count].copy()
        self._change(slots, FREE, PRIVATE)
        return slots

    def give_back(self, slots: Slots) -> None:
        """A request returns slots of its own."""
        self._change(slots, PRIVATE, FREE)
        self._push(slots)

    def adopt(self, slots: Slots) -> None:
        """A request's slots become the tree's."""
        self._change(slots, PRIVATE, HELD)
        self._held_count += len(slots)

    def evict(self, slots: Slots) -> None:
        """The tree's slots become free."""
        self._change(slots, HELD, FREE)
        self._held_count -= len(slots)
        self._push(slots)

    def _push(self, slots: Slots) -> None:
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)

    def _change(self, slots: Slots, before: int, after: int) -> None:
        if len(slots) == 0:
            return
        if (self._owner[slots] != before).any():
            wrong = [int(slot) for slot in slots if self._owner[slot] != before]
            raise IntegrityError("C-1", f"pool '{self.component}': slots {wrong} are not in state {before}")
        self._owner[slots] = after
