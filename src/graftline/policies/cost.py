"""What is least likely to save work leaves first: recency, plus a bonus for the work that is at stake.

    rank = last tick + 4 x mean gap between uses x chance of return x worth

The chance is learned: of the runs of one kind (how often used, how many children) so many came back. The
worth is what must be computed again when the run is gone. Of a state that is the pages of its node, since the
boundary falls back to where the node begins, compared with the mean of its component. Pages of other
components are worth the same, one as the other: those of a prefix-closed one leave one by one from the tail,
and a window needs all of its own, however its path is cut into nodes. Bytes need no term of their own, as all
slots of a component are of one size. All counts are the component's own, and are halved from time to time, so
that the old counts for less.

In the line of GreedyDual-Size-Frequency (Cherkasova: "Improving WWW proxies performance with greedy-dual-
size-frequency caching policy", HP Labs HPL-98-69R1, 1998), with the chance in the place of the frequency as
in LHD (Beckmann, Chen, Cidon: "LHD: improving cache hit rate by maximizing hit density", NSDI 2018).
"""

from __future__ import annotations

from collections.abc import Sequence

from graftline.components import ComponentSpec
from graftline.policies.base import EvictionPolicy, Usage

USES_MAX, CHILDREN_MAX = 4, 2
KINDS = USES_MAX * (CHILDREN_MAX + 1)
COUNT_MAX = 4096
"""A count that reaches this is halved, with what belongs to it."""
GAPS_KEPT = 4.0
"""A run that comes back for sure is kept as long as one used this many mean gaps later."""


class Learned:
    """What was seen of one component.

    Attributes:
        seen, returned: by kind, uses of runs, and those of them that another use followed.
        gaps, gap_ticks: how many, and their sum.
        touches, pages: uses, and the sum of their nodes' pages.
    """

    __slots__ = ("gap_ticks", "gaps", "holds_state", "pages", "returned", "seen", "touches")

    def __init__(self, holds_state: bool) -> None:
        self.holds_state = holds_state
        self.seen = [0] * KINDS
        self.returned = [0] * KINDS
        self.gaps = 0
        self.gap_ticks = 0
        self.touches = 0
        self.pages = 0


class Cost(EvictionPolicy):
    """Recency and a learned bonus."""

    name = "cost"

    def __init__(self) -> None:
        self.learned: list[Learned] = []

    def bind(self, specs: Sequence[ComponentSpec]) -> None:
        """Nothing is known of any component yet."""
        self.learned = [Learned(spec.rule.holds_state) for spec in specs]

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        """Counts the return, and the run as one of its new kind, which the weight keeps."""
        learned = self.learned[usage.component]
        if usage.uses > 1:
            learned.returned[int(usage.weight)] += 1
            learned.gaps += 1
            learned.gap_ticks += gap_ticks
            if learned.gaps == COUNT_MAX:
                learned.gaps //= 2
                learned.gap_ticks //= 2
        kind = min(usage.uses, USES_MAX) - 1 + USES_MAX * min(usage.children, CHILDREN_MAX)
        usage.weight = float(kind)
        learned.seen[kind] += 1
        if learned.seen[kind] == COUNT_MAX:
            learned.seen[kind] //= 2
            learned.returned[kind] //= 2
        learned.touches += 1
        learned.pages += usage.end_page - usage.start_page
        if learned.touches == COUNT_MAX:
            learned.touches //= 2
            learned.pages //= 2

    def rank(self, usage: Usage) -> float:
        """The last tick and the bonus."""
        return usage.last_tick + bonus(self.learned[usage.component], usage)

    def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
        """A run whose session said that it will be back is spared once, as if used just now."""
        if usage.sessions and usage.return_s > now_s:
            return clock + bonus(self.learned[usage.component], usage)
        return usage.rank


def bonus(learned: Learned, usage: Usage) -> float:
    """Ticks for which a run is kept longer than one that nobody will use; 0 while nothing is known."""
    if not learned.gaps:
        return 0.0
    span = GAPS_KEPT * (learned.gap_ticks / learned.gaps)
    return span * chance(learned, usage) * worth(learned, usage)


def chance(learned: Learned, usage: Usage) -> float:
    """Chance that the run is used again: that of its kind, and half of what is missing for a session's."""
    kind = int(usage.weight)
    found = min(1.0, (learned.returned[kind] + 1) / (learned.seen[kind] + 2))
    return found + (1.0 - found) / 2.0 if usage.sessions else found


def worth(learned: Learned, usage: Usage) -> float:
    """Work at stake, from 0 to 2, 1 for the mean."""
    if not learned.holds_state or not learned.pages:
        return 1.0
    pages = float(usage.end_page - usage.start_page)
    return 2.0 * pages / (pages + learned.pages / learned.touches)
