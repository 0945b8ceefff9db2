"""Results of the tree's operations: what was found, and what the owner of the slots must do now.

Nothing here performs I/O. Boundaries are counted in tokens, places inside a path in pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graftline.key import Namespace, Tokens

Slots: TypeAlias = npt.NDArray[np.int32]


class Tier(IntEnum):
    """Where a value lies."""

    DEVICE = 0
    HOST = 1
    STORE = 2


@dataclass(frozen=True, slots=True)
class Vote:
    """What one component said of a match; rule M-4.

    Attributes:
        component: its name.
        boundary_tokens: deepest boundary that is valid for this component alone.
        without_tokens: the boundary that the match would have had if this component had no vote.
    """

    component: str
    boundary_tokens: int
    without_tokens: int


@dataclass(frozen=True, slots=True)
class Match:
    """Longest reusable prefix of a key, and why it is not longer; rules M-1 to M-5.

    Attributes:
        namespace: where it was looked up.
        boundary_tokens: the agreed boundary, a multiple of the page; 0 for none.
        path_tokens: how much of the key the tree knows, in whole pages, at most the limit offered.
        votes: one a component, in the order of the components.
        limited_by: the component that kept the boundary above `path_tokens` away; empty when none did.
        lost_tokens: `path_tokens - boundary_tokens`.
        reason: why that component refused, in a few words; empty when nothing was lost.
        branch_tokens: where a kept window or checkpoint would let the next request of this kind
            start, or 0 when the boundary is already there (rule M-5).
        node: handle of the node in which the boundary lies; for `lease`.
        path_node: handle of the node in which the known path ends; for `claim`.
    """

    namespace: Namespace
    boundary_tokens: int
    path_tokens: int
    votes: tuple[Vote, ...]
    limited_by: str
    lost_tokens: int
    reason: str
    branch_tokens: int
    node: int
    path_node: int


@dataclass(frozen=True, slots=True)
class Held:
    """Consecutive pages of one component on a path.

    Attributes:
        first_page: index of the first page, counted from the start of the prefix.
        slots: one slot a page, shape (pages,), int32.
    """

    first_page: int
    slots: Slots

    @property
    def end_page(self) -> int:
        """Index one past the last page."""
        return self.first_page + len(self.slots)


@dataclass(frozen=True, slots=True)
class Lease:
    """Protection of what one boundary needs, until released; rules L-1 to L-5.

    Attributes:
        handle: identifies the lease in its core; stale once released.
        boundary_tokens: the boundary that it protects.
        held: component name to the pages that its rule needs at the boundary (never more).
    """

    handle: int
    boundary_tokens: int
    held: Mapping[str, Held]


@dataclass(frozen=True, slots=True)
class Insertion:
    """What became of the slots given to `insert`; rules N-1 to N-6.

    Attributes:
        boundary_tokens: end of the inserted path.
        new_pages: pages of the path that the tree did not know.
        adopted: component name to the pages now owned by the tree.
        duplicates: component name to the pages already held; their slots stay the caller's.
        lease: the lease at the end of the path when it was to move, else the lease given.
    """

    boundary_tokens: int
    new_pages: int
    adopted: Mapping[str, Sequence[Held]]
    duplicates: Mapping[str, Sequence[Held]]
    lease: Lease


@dataclass(frozen=True, slots=True)
class Freed:
    """Slots that left the tree; they belong to the caller now.

    Attributes:
        slots: component name to slots, int32, in the order in which they left.
        dead_pages: component name to how many of them no boundary could have used any more.
    """

    slots: Mapping[str, Slots] = field(default_factory=dict)
    dead_pages: Mapping[str, int] = field(default_factory=dict)

    def count(self, component: str) -> int:
        """How many slots of a component were freed."""
        return len(self.slots.get(component, ()))


@dataclass(frozen=True, slots=True)
class Event:
    """A value came to or left a tier; rule V-1. In order, they rebuild what the tree holds.

    Attributes:
        kind: `stored` or `removed`.
        component: name of the component.
        tier: where.
        namespace: of the path.
        first_page: index of the first page concerned.
        page_keys: chained key of each page (rule K-4), 32 bytes each.
        parent_key: key of the page before the first one, or the namespace's seed.
        tokens: token ids of the pages, for `stored`; empty for `removed`.
        reason: for `removed`: `evicted`, `dead`, `path evicted` or `cleared`.
    """

    kind: str
    component: str
    tier: Tier
    namespace: Namespace
    first_page: int
    page_keys: tuple[bytes, ...]
    parent_key: bytes
    tokens: Tokens
    reason: str


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Pages of one component in one tier: `held_pages` includes `leased_pages`."""

    component: str
    tier: Tier
    held_pages: int
    leased_pages: int
    dead_pages: int


@dataclass(frozen=True, slots=True)
class TreeStats:
    """Sizes of a tree; `sessions` are those open. Cost: O(1), kept by counters."""

    nodes: int
    leases: int
    path_pages: int
    pools: tuple[PoolStats, ...]
    sessions: int
