"""Pools of values, tier by tier."""

from graftline.tiers.device import NumpyPool, ValuePool

__all__ = ["NumpyPool", "ValuePool"]
