"""What one step computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graftline.cache import CachedRequest
from graftline.engine.sequence import Phase, Sequence


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens `start .. end` of one sequence, to be computed in this step."""

    sequence: Sequence
    cached: CachedRequest
    start: int
    end: int

    @property
    def samples(self) -> bool:
        """Whether the last token known is computed, so that the next one can be chosen."""
        return self.end == len(self.cached.tokens)

    @property
    def tokens(self) -> int:
        """How many tokens are computed."""
        return self.end - self.start


class StepPlan:
    """The work of one step, within a budget.

    Attributes:
        budget_tokens: how many more tokens may be computed.
    """

    def __init__(self, budget_tokens: int) -> None:
        self.budget_tokens = budget_tokens
        self._works: dict[int, Work] = {}

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        """The work whose sequences still run."""
        return (work for work in self._works.values() if work.sequence.phase is Phase.RUNNING)

    def add(self, work: Work) -> None:
        """Takes work in; each sequence has one at most."""
        self._works[work.sequence.ident] = work
        self.budget_tokens -= work.tokens

    def drop(self, sequence: Sequence) -> None:
        """Takes a sequence's work out, if it has any."""
        work = self._works.pop(sequence.ident, None)
        self.budget_tokens += work.tokens if work else 0

    def cut(self, sequence: Sequence, end: int) -> None:
        """Ends a sequence's work at a token, if it has any that goes on beyond."""
        work = self._works.get(sequence.ident)
        if work is not None and work.end > end:
            self._works[sequence.ident] = replace(work, end=end)
            self.budget_tokens += work.end - end
