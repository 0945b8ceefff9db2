"""Pools of values, tier by tier, and what moves them."""

from graftline.tiers.copies import CopyThread, Ticket
from graftline.tiers.device import NumpyPool, RowPool, Rows, ValuePool
from graftline.tiers.host import HostPool, copy_rows

__all__ = ["CopyThread", "HostPool", "NumpyPool", "RowPool", "Rows", "Ticket", "ValuePool", "copy_rows"]
