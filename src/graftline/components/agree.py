"""The deepest boundary on which rules agree, from bitmaps of pages alone (rules R-1, M-2).

The tree answers the same question over its nodes. Here nothing is known but which pages exist somewhere: in
one tier, or in any of several (their bitmaps joined with `|`). Boundaries and pages are counted in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graftline.components.base import ReuseRule
from graftline.components.checkpoint import Checkpoint
from graftline.components.chunk import Chunk
from graftline.components.full import Full
from graftline.components.window import Window
from graftline.errors import ConfigError

Bitmap: TypeAlias = npt.NDArray[np.bool_]
Pages: TypeAlias = npt.NDArray[np.int64]


def _window(rule: Window, boundaries: Pages, page_tokens: int) -> Pages:
    return np.maximum(boundaries * page_tokens - rule.lookback_tokens, 0) // page_tokens


def _chunk(rule: Chunk, boundaries: Pages, page_tokens: int) -> Pages:
    tokens = boundaries * page_tokens
    return np.where(
        tokens % rule.chunk_tokens, (tokens - tokens % rule.chunk_tokens) // page_tokens, boundaries
    )


# By exact type: a subclass may have another `first_page`.
_VECTOR_FORMS: dict[type[ReuseRule], Callable[[Any, Pages, int], Pages]] = {
    Full: lambda _rule, boundaries, _page_tokens: np.zeros_like(boundaries),
    Window: _window,
    Chunk: _chunk,
    Checkpoint: lambda _rule, boundaries, _page_tokens: np.maximum(boundaries - 1, 0),
}


def first_pages(rule: ReuseRule, pages: int, page_tokens: int) -> Pages:
    """`rule.first_page(b, page_tokens)` for every b in `0 .. pages`, shape (pages + 1,), i64.

    Cost: O(pages) in numpy for the rules of graftline, O(pages) calls for a rule of one's own.
    """
    boundaries = np.arange(pages + 1, dtype=np.int64)
    form = _VECTOR_FORMS.get(type(rule))
    if form is not None:
        return form(rule, boundaries, page_tokens)
    return np.fromiter((rule.first_page(b, page_tokens) for b in range(pages + 1)), np.int64, pages + 1)


def valid_boundaries(rule: ReuseRule, bitmap: Bitmap, page_tokens: int) -> Bitmap:
    """Which boundaries one rule accepts when exactly the set pages are held.

    Args:
        rule: of the component.
        bitmap: bool, shape (pages,): page i is there.
        page_tokens: tokens a page.
    Returns:
        bool, shape (pages + 1,): boundary b is valid; boundary 0 always is.
    """
    pages = len(bitmap)
    # Start of the gapless run that ends at b; b itself where page b - 1 is not there.
    run_starts = np.zeros(pages + 1, dtype=np.int64)
    np.maximum.accumulate(np.where(bitmap, 0, np.arange(1, pages + 1)), out=run_starts[1:])
    return first_pages(rule, pages, page_tokens) >= run_starts


def deepest_boundary(
    rules: Sequence[ReuseRule], bitmaps: Sequence[Bitmap], page_tokens: int, limit_pages: int | None = None
) -> int:
    """Deepest boundary, in pages, for which every rule has all its pages `[first_page(b), b)`; 0 for none.

    Args:
        rules: one a component.
        bitmaps: one a rule, bool, shape (pages,), all of one length.
        page_tokens: tokens a page.
        limit_pages: deepest boundary asked for; the length of the bitmaps when left out.
    Raises:
        ConfigError: not one bitmap a rule, or bitmaps of different lengths.
    """
    if len(rules) != len(bitmaps) or len({len(bitmap) for bitmap in bitmaps}) > 1:
        lengths = [len(bitmap) for bitmap in bitmaps]
        raise ConfigError(f"{len(rules)} rules need as many bitmaps of one length, got lengths {lengths}")
    if not rules:
        raise ConfigError("no rules given, there is nothing to agree on")
    pages = len(bitmaps[0]) if limit_pages is None else max(0, min(limit_pages, len(bitmaps[0])))
    agreed = np.ones(pages + 1, dtype=np.bool_)
    for rule, bitmap in zip(rules, bitmaps, strict=True):
        agreed &= valid_boundaries(rule, bitmap[:pages], page_tokens)
    return int(np.flatnonzero(agreed)[-1])
