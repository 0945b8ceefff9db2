"""What an order of eviction must answer: how much is this run of values worth keeping?

A policy ranks a run when it is used and when what is known of it changes, not when something must go; so
ranks stay valid between and the tree can keep its candidates in order at all times (rule E-6). The Rust
core knows the policies of this folder; both cores must come to the same numbers bit for bit, so policies
use nothing but `+ - * /`, comparisons and whole numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.components import ComponentSpec


@dataclass(frozen=True, slots=True)
class Passage:
    """A request of a session that was registered (rule P-8).

    Attributes:
        session: its handle.
        pages: length of its path.
        kept_pages: how many pages of the session's path before are on it; None when that is not known,
            since nothing, or only pages on this path, is left of the path before.
        answer_pages: length of the answer, parts of a page too; where nobody tells it, the pages that the
            last insertion made, when the boundary is their end.
    """

    session: int
    pages: int
    kept_pages: int | None
    answer_pages: float


class Usage:
    """What is known of one run of values: what one component holds of one node.

    Attributes:
        last_tick: logical time of the last use; unique in its tree, but for halves of a split node.
        uses: how often it was used.
        level, rank: what the policy answered when it was asked last.
        weight: a number of the policy's own, 0 at first; halves of a split node share it.
        last_s: time of the last use, as the owner of the tree tells it (rule S-2).
        priority: largest hint of the sessions that ever referred to the node (rule S-7).
        return_s: when a session that gave a hint is expected next; in the past where none is.
        component: index of the component.
        sessions: how many sessions refer to a page of the run (rule S-3).
        start_page, end_page: place of the node at the last use, half-open; for policies that age, also
            when they were told of the run.
        children: nodes right below the node at the last use.
        passes, parties, session, since_s, chance, share, scale_s, kind, is_found, gap_root, gaps: like
            `weight`, for those that age.
    """

    __slots__ = (
        "asked",
        "chance",
        "children",
        "component",
        "end_page",
        "gap_root",
        "gaps",
        "is_found",
        "kind",
        "last_s",
        "last_tick",
        "level",
        "parties",
        "passes",
        "priority",
        "rank",
        "return_s",
        "scale_s",
        "session",
        "sessions",
        "share",
        "since_s",
        "stale",
        "start_page",
        "uses",
        "weight",
    )

    def __init__(self, component: int = 0) -> None:
        self.component = component
        self.last_tick = 0
        self.uses = 0
        self.level = 0
        self.rank = 0.0
        self.weight = 0.0
        self.last_s = 0.0
        self.priority = 0
        self.return_s = 0.0
        self.sessions = 0
        self.start_page = 0
        self.end_page = 0
        self.children = 0
        self.passes = self.parties = self.session = 0
        self.since_s = self.chance = self.share = self.gap_root = self.gaps = 0.0
        self.scale_s = 1.0
        self.kind = 0
        self.is_found = False
        self.stale = False  # a hint changed, the policy is to be asked again (rule P-3)
        self.asked = False  # `rerank` was asked since the last rank (rule P-4)

    def copy(self) -> Usage:
        """The same usage for the other half of a split node."""
        twin = Usage()
        for name in Usage.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin


class EvictionPolicy(ABC):
    """Ranks runs of values: the lowest level leaves first, then the lowest rank, then the older tick.

    Levels and ranks are compared within one component of one tree only. A policy belongs to one tree.
    """

    name: str
    ages = False
    """Whether ranks change as time goes by and sessions come back (rules P-7, P-8)."""

    @property
    def text(self) -> str:
        """What `make_policy` makes the same policy from."""
        return self.name

    def bind(self, specs: Sequence[ComponentSpec]) -> None:
        """Tells the components of the tree, once, before anything else."""
        return

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        """A run was used; `usage` counts this use already. What a policy learns, it learns here.

        Args:
            gap_ticks, gap_s: since the use before; since the beginning for the first one.
        """
        return

    def level(self, usage: Usage) -> int:
        """What is compared before the rank; 0 or more."""
        return 0

    @abstractmethod
    def rank(self, usage: Usage) -> float:
        """Rank of a run that was used just now, or of which something else changed."""

    def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
        """Asked once after each rank, when the run is the next to leave; more than its rank spares it."""
        return usage.rank

    def set_time(self, now_s: float) -> None:
        """Tells the time to a policy that ages."""
        return

    def registered(self, passage: Passage) -> None:
        """Tells a policy that ages that a session came back; `passed` follows for every run on its path."""
        return

    def passed(self, usage: Usage) -> None:
        """Tells a policy that ages of a run on the path registered just now; it is asked its rank then."""
        return

    def found(self, usage: Usage) -> None:
        """Tells a policy that ages of a run that a lease needs, right before it is touched."""
        return

    def left(self, usage: Usage) -> None:
        """Tells a policy that ages of a run that no session refers to any more; it is asked its rank then."""
        return

    def settled(self) -> None:
        """Tells a policy that ages that it was told of all runs of the path."""
        return

    def closed(self, session: int) -> None:
        """Tells a policy that ages that a session was closed."""
        return
