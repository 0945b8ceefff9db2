"""What a policy remembers of sessions: how many came back, after how long, and where each one stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CHANCE_MAX: Final = 0.999
KEPT: Final = 0.98
"""Share of what was learned that each refit keeps."""


class Chance:
    """How many came back of those seen, and `kept` what they used again.

    `pending` are those who should be back by now, and are not.
    """

    __slots__ = ("kept", "pending", "returned", "seen")

    def __init__(self) -> None:
        self.returned = self.seen = self.kept = self.pending = 0.0

    def value(self, prior: float, strength: float) -> float:
        """The chance, with a prior that counts as much as a weight of `strength`."""
        seen = self.seen + self.pending + strength
        return min((self.returned + strength * prior) / seen, CHANCE_MAX)

    def share(self, prior: float, strength: float) -> float:
        """What is used again by those who come back, of what they had."""
        return (self.kept + strength * prior) / (self.returned + strength)

    def forget(self) -> None:
        """The past counts for less."""
        self.returned *= KEPT
        self.kept *= KEPT
        self.seen *= KEPT
        self.pending = 0.0


class Mean:
    """A mean of square roots of gaps, so that single long ones do not rule it."""

    __slots__ = ("count", "root")

    def __init__(self) -> None:
        self.count = self.root = 0.0

    def add(self, root: float, most: float) -> None:
        """One more; the weight of those before is at most `most`."""
        self.count = min(self.count + 1.0, most)
        self.root += (root - self.root) / self.count


@dataclass(slots=True)
class Course:
    """What is known of one session.

    Attributes:
        number: names the session in `Usage.session`.
        turns: requests so far.
        last_s: when the last one was registered.
        gaps: mean of its gaps.
        answer, answers: pages of the last answer, mean of those before.
        turn, cell: place of its chance.
        scale_s: the gap that is expected.
        weight: what it counts for.
        pages: length of its path.
    """

    number: int
    turns: int = 0
    last_s: float = 0.0
    gaps: Mean = field(default_factory=Mean)
    answer: float = 0.0
    answers: float = 0.0
    turn: int = 0
    cell: int = 0
    scale_s: float = 1.0
    weight: float = 0.0
    pages: int = 0
