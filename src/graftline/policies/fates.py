"""What becomes of runs of values, by kind, of one component.

Pages that were counted since the last settling are whole numbers and kept apart, and no answer depends on
them before: so the order in which runs are told does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graftline.policies.courses import CHANCE_MAX, KEPT

PASSES: Final = 4
"""Passes told apart, with none; more count as the most. Paths shorter than the one before have their own."""
SHARED: Final = 2 * PASSES
"""What several sessions passed."""
KINDS: Final = SHARED + 1
NEW_CHANCE, LEFT_CHANCE, SHARED_CHANCE = 0.5, 0.1, 0.9
"""Chance to be used again while nothing is known: of what nobody passed, of what one session passed and left,
of what several did."""
KEPT_SHARE: Final = 0.8


def kind_of(passes: int, is_shorter: bool) -> int:
    """Kind of what one session passed so often, 0 for what nobody did."""
    return min(passes, PASSES - 1) + (PASSES if is_shorter else 0)


class Odds:
    """Pages that were used again, of those seen."""

    __slots__ = ("new_returned", "new_seen", "returned", "seen", "value")

    def __init__(self, value: float) -> None:
        self.returned = self.seen = self.new_returned = self.new_seen = 0.0
        self.value = value

    def settle(self) -> None:
        """What is new is counted with the rest."""
        self.returned += self.new_returned
        self.seen = max(self.seen + self.new_seen, self.returned)
        self.new_returned = self.new_seen = 0.0

    def believe(self, prior: float, strength: float) -> None:
        """Finds the value anew."""
        self.value = min((self.returned + strength * prior) / (self.seen + strength), CHANCE_MAX)

    def forget(self) -> None:
        """The past counts for less."""
        self.returned *= KEPT
        self.seen *= KEPT


class Fates:
    """Counts of one component.

    Attributes:
        left: of what no session refers to, what was used again; by kind.
        kept: of what a session referred to that came back, what it used again; by passes.
        kept_share: share of all that was.
    """

    __slots__ = ("kept", "kept_share", "left")

    def __init__(self) -> None:
        self.left = [Odds(prior_of(kind, LEFT_CHANCE)) for kind in range(KINDS)]
        self.kept = [Odds(KEPT_SHARE) for _ in range(PASSES)]
        self.kept_share = KEPT_SHARE

    def count_left(self, kind: int, pages: float) -> None:
        """Pages are there that no session refers to; fewer when it was too early to say so."""
        self.left[kind].new_seen += pages

    def count_return(self, kind: int, pages: float) -> None:
        """Such pages were used again."""
        self.left[kind].new_returned += pages

    def count_kept(self, kind: int, pages: float, is_kept: bool) -> None:
        """A session came back to pages, or passed them by."""
        odds = self.kept[kind % PASSES]
        odds.new_seen += pages
        odds.new_returned += pages if is_kept else 0.0

    def left_chance(self, kind: int) -> float:
        """Chance that pages which no session refers to are used again."""
        return self.left[kind].value

    def kept_factor(self, kind: int) -> float:
        """How much likelier than others pages passed so often are used again by a session that comes back."""
        return self.kept[kind % PASSES].value / self.kept_share

    def settle(self, strength: float) -> None:
        """What was counted counts from now on; beliefs count as much as `strength` pages."""
        of_left = settle_all(self.left, SHARED, LEFT_CHANCE, strength)
        for kind, odds in enumerate(self.left):
            odds.believe(prior_of(kind, of_left), strength)
        self.kept_share = settle_all(self.kept, PASSES, KEPT_SHARE, strength)
        for odds in self.kept:
            odds.believe(self.kept_share, strength)

    def forget(self) -> None:
        """The past counts for less."""
        for odds in (*self.left, *self.kept):
            odds.forget()


def prior_of(kind: int, of_left: float) -> float:
    """What is believed beforehand of a kind that no session refers to."""
    if kind == 0:
        return NEW_CHANCE
    return SHARED_CHANCE if kind == SHARED else of_left


def settle_all(kinds: Sequence[Odds], end: int, prior: float, strength: float) -> float:
    """Settles all kinds; returns what is believed together of those before `end` that were passed."""
    together = Odds(prior)
    for odds in kinds:
        odds.settle()
    for odds in kinds[1:end]:
        together.returned += odds.returned
        together.seen += odds.seen
    together.believe(prior, strength)
    return together.value
