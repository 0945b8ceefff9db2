"""Recurrent layers: one exact state at the boundary is needed (rule R-6)."""

from __future__ import annotations

from dataclasses import dataclass

from graftline.components.base import ReuseRule


@dataclass(frozen=True, slots=True)
class Checkpoint(ReuseRule):
    """Valid where a state is kept at the boundary itself.

    The value of page `i` is the state at the end of page `i`, so boundary `b` needs page `b - 1`.
    Mamba, SSM, gated delta rule, KDA, short convolutions.
    """

    refusal = "no checkpoint here"

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """The last page before the boundary."""
        return max(0, boundary_pages - 1)

    @property
    def holds_state(self) -> bool:
        """One state stands for the whole prefix before it."""
        return True

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """Only the empty prefix needs no state."""
        return 0

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:  # noqa: ARG002
        """No boundary but the empty prefix needs nothing."""
        return 0 if boundary_pages <= 0 else None
