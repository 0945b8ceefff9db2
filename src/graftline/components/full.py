"""Full attention: every page of the prefix is needed (rule R-3)."""

from __future__ import annotations

from dataclasses import dataclass

from graftline.components.base import ReuseRule


@dataclass(frozen=True, slots=True)
class Full(ReuseRule):
    """Valid where every page before the boundary is held. Full attention, MLA."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """Page 0: all pages before the boundary are needed."""
        return 0

    @property
    def prefix_closed(self) -> bool:
        """A page without the pages before it is of no use."""
        return True

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """Only the empty prefix needs nothing."""
        return 0

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:  # noqa: ARG002
        """No boundary but the empty prefix needs nothing."""
        return 0 if boundary_pages <= 0 else None
