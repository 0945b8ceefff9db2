"""Sliding-window attention: the trailing window is needed (rule R-4)."""

from __future__ import annotations

from dataclasses import dataclass

from graftline.components.base import ReuseRule
from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Window(ReuseRule):
    """Valid where the pages that cover the last `lookback_tokens` tokens are held without a gap.

    A window of W tokens counts the token itself, so it looks back W - 1 tokens.
    """

    lookback_tokens: int

    refusal = "window not held"

    def __post_init__(self) -> None:
        if self.lookback_tokens < 0:
            raise ConfigError(f"lookback_tokens is {self.lookback_tokens}, it must not be negative")

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        """Page of the oldest token that the next token can see."""
        return max(0, boundary_pages * page_tokens - self.lookback_tokens) // page_tokens

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:  # noqa: ARG002
        """A window always needs something, unless it looks back nowhere."""
        return 0 if self.lookback_tokens else boundary_pages

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:  # noqa: ARG002
        """No boundary but the empty prefix needs nothing, unless the window looks back nowhere."""
        return boundary_pages if boundary_pages <= 0 or not self.lookback_tokens else None
