"""What an order of eviction must answer: how much is this run of values worth keeping?

A policy ranks a run of values when it is used, not when something must go; so ranks stay valid
between uses and the tree can keep its candidates in order at all times (rule E-6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class Usage:
    """How one run of values was used.

    Attributes:
        last_tick: logical time of the last use; unique in its tree, but for halves of a split node.
        uses: how often it was used.
        rank: what the policy answered at the last use.
    """

    __slots__ = ("last_tick", "rank", "uses")

    def __init__(self, last_tick: int = 0, uses: int = 0, rank: float = 0.0) -> None:
        self.last_tick = last_tick
        self.uses = uses
        self.rank = rank

    def copy(self) -> Usage:
        """The same usage for the other half of a split node."""
        return Usage(self.last_tick, self.uses, self.rank)


class EvictionPolicy(ABC):
    """Ranks runs of values; the lowest rank leaves first, ties fall to the older tick."""

    name: str

    @abstractmethod
    def rank(self, usage: Usage) -> float:
        """Rank of a run that was used just now; `usage` already counts this use."""
