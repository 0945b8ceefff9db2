"""The cache that the library's model code sees: it writes to and reads from paged slot pools.

`PagedCache` is a cache of the library's own kind, one layer object per model layer. The model calls
`update` on it with the new keys and values of the whole packed row and gets back the KV of all spans,
which the attention function then takes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DummyLayer

from graftline.engine.layouts import KINDS, LayerPlan
from graftline.engine.reads import ComponentStep
from graftline.engine.state import EngineState


class PagedLayer(CacheLayerMixin):  # type: ignore[misc]
    """KV of one layer, in the pool of one component.

    Args:
        state: shared by all parts of the engine.
        index: number of the layer.
        component: whose pages it uses.
    """

    is_sliding = False

    def __init__(self, state: EngineState, index: int, component: str) -> None:
        super().__init__()
        self.state = state
        self.index = index
        self.component = component
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the pools exist before the first step."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The new tokens only: masks are made by the attention function, which knows the rows."""
        return query_length, 0

    def get_seq_length(self) -> int:
        """0: positions are always given, a packed row has no single length."""
        return 0

    def get_max_length(self) -> int:
        """-1: the pool's tables limit the length, not the layer."""
        return -1

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens' KV, (1, heads, total_tokens, dim), and return that of all spans.

        A layer whose values are its keys (one tensor given twice) stores them once.
        """
        shared = value_states is key_states
        keys = self.extend("key", key_states[0].transpose(0, 1)).transpose(0, 1)[None]
        if shared:
            return keys, keys
        return keys, self.extend("value", value_states[0].transpose(0, 1)).transpose(0, 1)[None]

    def extend(self, name: str, new: torch.Tensor) -> torch.Tensor:
        """Store one entry per new token, (total_tokens, ...), and return those of all spans."""
        part = self.state.step.components[self.component]
        if self.state.recording:
            shape = (self.state.planner.page_tokens, *new.shape[1:])
            self.state.record(self.component, f"{self.index}.{name}", shape, new.dtype)
            return new
        pool = self.state.tensor(self.component, f"{self.index}.{name}")
        write_tokens(pool, part, new)
        return new if part.pages is None else gather_tokens(pool, part)


class IndexedLayer(PagedLayer):
    """A layer whose indexer keeps a key per token beside the KV, in the same slots."""

    @property
    def indexer_position_ids(self) -> None:
        """None: positions of earlier tokens are not kept, they are known from the row's start."""
        return

    @indexer_position_ids.setter
    def indexer_position_ids(self, value: torch.Tensor) -> None:
        pass

    def update_indexer(self, indexer_key_states: torch.Tensor) -> torch.Tensor:
        """Store the new indexer keys, (1, n, dim), and return those of the row; one row at a time."""
        return self.extend("indexer_key", indexer_key_states[0])[None]


class PagedCache(Cache):  # type: ignore[misc]
    """What the model gets as its cache: one layer object per layer, all of them over the slot pools."""

    def __init__(self, state: EngineState, special: Mapping[str, Callable[..., PagedLayer]]) -> None:
        Cache.__init__(self, layers=[_make_layer(state, plan, special) for plan in state.layout.layers])
        self.state = state

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store and gather KV of one layer; the library's argument names are part of the interface."""
        self.state.step.last_layer = layer_idx
        keys, values = self.layers[layer_idx].update(key_states, value_states)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """0, see `PagedLayer.get_seq_length`."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> torch.Tensor:  # noqa: ARG002
        """Positions of the new tokens less their places in the packed row, shape (total_tokens,)."""
        positions = self.state.step.positions[0]
        return positions - torch.arange(len(positions), device=positions.device)

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:  # noqa: ARG002
        """See `PagedLayer.get_mask_sizes`."""
        return query_length, 0


def _make_layer(state: EngineState, plan: LayerPlan, special: Mapping[str, Callable[..., PagedLayer]]) -> Any:
    stores = plan.attention is not None and plan.index in state.layout.component(plan.attention).layers
    if not stores:
        return DummyLayer()
    usual: Callable[..., PagedLayer] = (
        IndexedLayer if "indexer_key" in KINDS[plan.kind].sidecars else PagedLayer
    )
    return special.get(plan.kind, usual)(state, plan.index, str(plan.attention))


def write_tokens(pool: torch.Tensor, part: ComponentStep, new: torch.Tensor) -> None:
    """Put one entry per new token into a pool of pages, [slots, page_tokens, ...]."""
    if len(part.begun):
        pool.index_fill_(0, part.begun, 0)
    places = pool.view(pool.shape[0] * pool.shape[1], -1)
    places.index_copy_(0, part.write, new.reshape(new.shape[0], -1))


def gather_tokens(pool: torch.Tensor, part: ComponentStep) -> torch.Tensor:
    """Entries of all spans, (tokens, ...); whole pages are copied, flat, which is as fast as a plain copy."""
    pages = pool.view(pool.shape[0], -1).index_select(0, part.pages)
    tokens = pages.view(-1, *pool.shape[2:])
    return tokens if part.trim is None else tokens.narrow(0, *part.trim)
