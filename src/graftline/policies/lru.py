"""Least recently used leaves first."""

from __future__ import annotations

from graftline.policies.base import EvictionPolicy, Usage


class Lru(EvictionPolicy):
    """Plain recency: the rank is the tick of the last use."""

    name = "lru"

    def rank(self, usage: Usage) -> float:
        """The last tick."""
        return float(usage.last_tick)
