"""Nodes of the tree and what they hold.

A node is a run of pages with one parent. What one component holds of it is one run of
pages anywhere inside the node (rule T-3): a number and a vector of slots. All places are absolute
pages, counted from the start of the prefix, so that splitting a node moves nothing.
"""

from __future__ import annotations

import numpy as np

from graftline.key import Namespace, Tokens
from graftline.plan import Slots
from graftline.policies import Usage

NO_SLOTS: Slots = np.empty(0, dtype=np.int32)
NO_TOKENS: Tokens = np.empty(0, dtype=np.uint32)


class Holding:
    """What one component holds of one node.

    Attributes:
        first: first page held; meaningless while `slots` is empty.
        slots: one slot a page.
        locks: how many leases protect the node from a page on, by that page (rule L-2).
        references: how many sessions refer to the node from a page on, by that page (rule S-3).
        usage: recency and rank.
        version: number of its valid entry among the eviction candidates.
        leased_pages, dead_pages: what the counters of the tree hold for it.
        lost: whether a value of it was evicted from this node.
    """

    __slots__ = (
        "dead_pages",
        "first",
        "leased_pages",
        "locks",
        "lost",
        "references",
        "slots",
        "usage",
        "version",
    )

    def __init__(self, component: int) -> None:
        self.first = 0
        self.slots: Slots = NO_SLOTS
        self.locks: dict[int, int] = {}
        self.references: dict[int, int] = {}
        self.usage = Usage(component)
        self.version = 0
        self.leased_pages = 0
        self.dead_pages = 0
        self.lost = False

    @property
    def end(self) -> int:
        """One past the last page held."""
        return self.first + len(self.slots)

    def lock_first(self) -> int | None:
        """First protected page, or None when no lease protects anything here."""
        return min(self.locks) if self.locks else None

    def sessions(self) -> int:
        """How many sessions refer to a page of the run."""
        return sum(count for first, count in self.references.items() if first < self.end)


class Node:
    """A run of pages on a path.

    Attributes:
        ident: handle; never reused. A split leaves it with the deeper half (rule T-5).
        start: pages before this node.
        tokens: token ids of its pages, u32.
        leases: leases whose boundary is the end of this node.
        sessions: names of the sessions whose frontier is the end of this node.
        shallowest, deepest: hull of the agreed boundaries inside the node, in pages; 0 for none.
        below: shallowest agreed boundary below the node, in pages; 0 for none.
        holdings: what is held, by component.
    """

    __slots__ = (
        "below",
        "children",
        "deepest",
        "holdings",
        "ident",
        "leases",
        "namespace",
        "page_keys",
        "pages",
        "parent",
        "sessions",
        "shallowest",
        "start",
        "tokens",
    )

    def __init__(
        self, ident: int, namespace: Namespace, parent: Node | None, start: int, components: int
    ) -> None:
        self.ident = ident
        self.namespace = namespace
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.start = start
        self.pages = 0
        self.tokens: Tokens = NO_TOKENS
        self.leases = 0
        self.sessions: dict[str, None] = {}  # an empty dictionary takes less than an empty set
        self.shallowest = 0
        self.deepest = 0
        self.below = 0
        self.page_keys: list[bytes] = []
        self.holdings = [Holding(component) for component in range(components)]

    @property
    def end(self) -> int:
        """Pages up to the end of this node."""
        return self.start + self.pages

    @property
    def first_boundary(self) -> int:
        """Shallowest agreed boundary in or below the node; 0 for none."""
        return self.shallowest or self.below
