"""The one question that the tree asks of a component: which pages does a boundary need?

A boundary `b` (counted in pages from the start of the prefix) is valid for a component exactly when
every page in `[first_page(b), b)` is held (rule R-1). `first_page` never goes down as `b` grows
(rule R-2), which is what lets the tree find the deepest valid boundary of a whole node at once.
A checkpoint fits the same form: the value of page `i` is the state kept at the end of page `i`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from graftline.errors import ConfigError


class ReuseRule(ABC):
    """Where values of one component may be reused, as a pure function of the boundary.

    A rule of your own is a subclass with one method; see `docs/guide/own-component.md`.
    """

    refusal: str = "not held"
    """Why a boundary is refused when a needed page was never stored, in a few words."""

    @abstractmethod
    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        """First page that a boundary needs; the needed pages are `[result, boundary_pages)`.

        Must lie in `0 .. boundary_pages` and never go down as the boundary grows (rule R-2).
        """

    @property
    def prefix_closed(self) -> bool:
        """Whether every boundary needs all pages from the start, so that values leave from the tail only."""
        return False

    @property
    def holds_state(self) -> bool:
        """Whether a value is one state at the end of a page, rather than the page's own tokens."""
        return False

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:
        """Deepest boundary at or below the given one that needs no page at all; 0 always is one."""
        for boundary in range(boundary_pages, 0, -1):
            if self.first_page(boundary, page_tokens) >= boundary:
                return boundary
        return 0

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:
        """Shallowest boundary in `boundary_pages .. last_pages` that needs no page, or None."""
        for boundary in range(boundary_pages, last_pages + 1):
            if self.first_page(boundary, page_tokens) >= boundary:
                return boundary
        return None


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One component of a model: a name, a rule, the size of its pool.

    Attributes:
        name: unique in its cache, for example `full`, `swa`, `state`.
        rule: where its values may be reused.
        slots: places in its device pool; one slot holds one page (one state for a checkpoint).
        sidecars: names of pools that use the same slots, move with them and take no vote (rule R-7).
        slot_bytes: device bytes of one slot, sidecars included; 0 when unknown.
    """

    name: str
    rule: ReuseRule
    slots: int
    sidecars: tuple[str, ...] = ()
    slot_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.name or not self.name.replace("_", "").replace("-", "").isalnum():
            raise ConfigError(f"component name '{self.name}' must be letters, digits, '-' or '_'")
        if self.slots < 1:
            raise ConfigError(f"component '{self.name}' has {self.slots} slots, it needs at least 1")
        if not isinstance(self.rule, ReuseRule):
            raise ConfigError(f"component '{self.name}': rule {self.rule!r} is not a ReuseRule")
