"""What no open session refers to leaves first.

The published session-aware order: referenced or not, then the number of sessions, then another policy's
order. The number alone says both.
"""

from __future__ import annotations

from collections.abc import Sequence

from graftline.components import ComponentSpec
from graftline.policies.base import EvictionPolicy, Passage, Usage

BASE_LEVELS = 1 << 20
"""Levels of the base policy; higher ones count as the highest."""


class Session(EvictionPolicy):
    """Number of sessions, then the order of a base policy."""

    name = "session"

    def __init__(self, base: EvictionPolicy) -> None:
        self.base = base
        self.ages = base.ages

    @property
    def text(self) -> str:
        """`session(base)`."""
        return f"{self.name}({self.base.text})"

    def bind(self, specs: Sequence[ComponentSpec]) -> None:
        """Tells the base policy."""
        self.base.bind(specs)

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        """Tells the base policy."""
        self.base.touch(usage, gap_ticks, gap_s)

    def level(self, usage: Usage) -> int:
        """The number of sessions, then the base policy's level."""
        return usage.sessions * BASE_LEVELS + min(self.base.level(usage), BASE_LEVELS - 1)

    def rank(self, usage: Usage) -> float:
        """The base policy's rank."""
        return self.base.rank(usage)

    def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
        """The base policy's answer."""
        return self.base.rerank(usage, now_s, clock)

    def set_time(self, now_s: float) -> None:
        """Tells the base policy."""
        self.base.set_time(now_s)

    def registered(self, passage: Passage) -> None:
        """Tells the base policy."""
        self.base.registered(passage)

    def passed(self, usage: Usage) -> None:
        """Tells the base policy."""
        self.base.passed(usage)

    def found(self, usage: Usage) -> None:
        """Tells the base policy."""
        self.base.found(usage)

    def left(self, usage: Usage) -> None:
        """Tells the base policy."""
        self.base.left(usage)

    def settled(self) -> None:
        """Tells the base policy."""
        self.base.settled()

    def closed(self, session: int) -> None:
        """Tells the base policy."""
        self.base.closed(session)
