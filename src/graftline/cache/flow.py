"""What moved between tiers, and what did not: counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graftline.plan import Tier


@dataclass(slots=True)
class Flow:
    """Counters since the start; all keys are small fixed sets of words.

    Attributes:
        pages, bytes: by (component, from tier, to tier).
        seconds: by (from tier, to tier), of copying alone.
        dropped: moves that were given up, by (from tier, to tier, reason); nothing is lost but time.
        reused_tokens: what requests found, by the tier that it was in.
    """

    pages: Counter[tuple[str, Tier, Tier]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, Tier, Tier]] = field(default_factory=Counter)
    seconds: Counter[tuple[Tier, Tier]] = field(default_factory=Counter)
    dropped: Counter[tuple[Tier, Tier, str]] = field(default_factory=Counter)
    reused_tokens: Counter[Tier] = field(default_factory=Counter)

    def moved(self, component: str, source: Tier, target: Tier, pages: int, slot_bytes: int) -> None:
        """Pages that arrived."""
        self.pages[component, source, target] += pages
        self.bytes[component, source, target] += pages * slot_bytes

    def took(self, source: Tier, target: Tier, seconds: float) -> None:
        """Time of one copy."""
        self.seconds[source, target] += seconds  # type: ignore[assignment]

    def drop(self, source: Tier, target: Tier, reason: str) -> None:
        """A move that was given up."""
        self.dropped[source, target, reason] += 1
