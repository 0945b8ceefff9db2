"""The pool of the host tier: one row of bytes a slot, whatever the device's tensors look like."""

from __future__ import annotations

import numpy as np

from graftline.plan import Slots
from graftline.tiers.device import PartPool, RowPart, RowPool, Rows

STEP_BYTES = 16 * 2**20
"""Most bytes between two pools on the way at once."""


class HostPool:
    """Rows of one component in host memory.

    Args:
        rows: memory of the pool, shape (slots, slot_bytes); pinned by the caller where that helps.
        layout: that of the device's pool: rows of another layout never meet.
    """

    def __init__(self, rows: Rows, layout: str) -> None:
        self.rows = rows
        self.slot_bytes = int(rows.shape[1])
        self.layout = layout

    @classmethod
    def zeros(cls, slots: int, device: RowPool) -> HostPool:
        """A pool for a device's rows; the memory is taken as it is used."""
        return cls(np.zeros((slots, device.slot_bytes), np.uint8), device.layout)

    def copy(self, source: int, target: int) -> None:
        """Overwrites slot `target` with slot `source`."""
        self.rows[target] = self.rows[source]

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        np.take(self.rows, slots, axis=0, out=rows, mode="clip")

    def export_part(self, slots: Slots, part: RowPart) -> Rows:
        """One tensor's bytes of slots, as a new array of shape (len(slots), bytes of the part)."""
        return self.rows[slots, part.columns]

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        self.rows[slots] = rows


def copy_rows(source: RowPool, source_slots: Slots, target: RowPool, target_slots: Slots) -> None:
    """Copies slots between pools of one layout, a bounded number of bytes at a time."""
    step = max(1, STEP_BYTES // max(1, source.slot_bytes))
    for first in range(0, len(source_slots), step):
        part = slice(first, first + step)
        rows = np.empty((len(source_slots[part]), source.slot_bytes), np.uint8)
        source.export_rows(source_slots[part], rows)
        target.import_rows(target_slots[part], rows)


def copy_part(
    source: HostPool, source_slots: Slots, target: PartPool, target_slots: Slots, part: RowPart
) -> None:
    """Copies one tensor of slots, a bounded number of bytes at a time."""
    step = max(1, STEP_BYTES // max(1, part.columns.stop - part.columns.start))
    for first in range(0, len(source_slots), step):
        here = slice(first, first + step)
        target.import_part(target_slots[here], source.export_part(source_slots[here], part), part)
