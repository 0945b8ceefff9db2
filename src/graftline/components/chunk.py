"""Chunked attention: tokens see only their own chunk (rule R-5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from graftline.components.base import ReuseRule
from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Chunk(ReuseRule):
    """Valid where the pages from the start of the chunk that holds the next token are held.

    At a boundary between two chunks nothing is needed.
    """

    chunk_tokens: int

    refusal = "chunk not held"

    def __post_init__(self) -> None:
        if self.chunk_tokens < 1:
            raise ConfigError(f"chunk_tokens is {self.chunk_tokens}, it must be at least 1")

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        """Page of the first token of the chunk that the next token belongs to."""
        boundary_tokens = boundary_pages * page_tokens
        if boundary_tokens % self.chunk_tokens == 0:
            return boundary_pages
        return boundary_tokens // self.chunk_tokens * self.chunk_tokens // page_tokens

    def free_at_or_below(self, boundary_pages: int, page_tokens: int) -> int:
        """Deepest seam between chunks that is a whole number of pages."""
        step = self.chunk_tokens // gcd(self.chunk_tokens, page_tokens)
        return boundary_pages // step * step

    def free_at_or_above(self, boundary_pages: int, last_pages: int, page_tokens: int) -> int | None:
        """Shallowest seam between chunks that is a whole number of pages."""
        step = self.chunk_tokens // gcd(self.chunk_tokens, page_tokens)
        seam = -(-boundary_pages // step) * step
        return seam if seam <= last_pages else None
