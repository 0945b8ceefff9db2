"""MiniMax: its forward accepts no other cache than its own class.

That class also takes the lengths of the whole cache from layer 0, which is wrong when layer 0 is linear, as
in the released models. Only its name is inherited here; everything else is the paged cache's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from transformers.models.minimax.modeling_minimax import MiniMaxCache

from graftline.engine.kv_layers import PagedCache


@cache
def minimax_cache_class() -> type[PagedCache]:
    """A paged cache that passes for a `MiniMaxCache`."""

    class PagedMiniMaxCache(PagedCache, MiniMaxCache):  # type: ignore[misc]
        """See the module's docstring."""

        def __len__(self) -> int:
            return len(self.layers)

        def __init__(self, *args: Any) -> None:
            PagedCache.__init__(self, *args)

    return PagedMiniMaxCache
