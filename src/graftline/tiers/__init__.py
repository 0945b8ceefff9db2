"""Pools of values, tier by tier, and what moves them."""

from graftline.tiers.copies import CopyThread, Ticket
from graftline.tiers.device import (
    NumpyPool,
    PartPool,
    RowPart,
    RowPool,
    Rows,
    ValuePool,
    has_parts,
    row_parts,
)
from graftline.tiers.host import HostPool, copy_part, copy_rows
from graftline.tiers.progress import Gate, LoadBrokenError, Progress

__all__ = [
    "CopyThread",
    "Gate",
    "HostPool",
    "LoadBrokenError",
    "NumpyPool",
    "PartPool",
    "Progress",
    "RowPart",
    "RowPool",
    "Rows",
    "Ticket",
    "ValuePool",
    "copy_part",
    "copy_rows",
    "has_parts",
    "row_parts",
]
