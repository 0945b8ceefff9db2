"""SGLang's unified radix cache on a CPU, with either of its tree cores. Runs in the rival's environment."""

from __future__ import annotations

import logging
import time
import warnings
from array import array
from dataclasses import dataclass
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.INFO)

import torch  # noqa: E402

torch.set_num_threads(1)

from sglang.srt.runtime_context import publish, reset_context  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402

reset_context()
_arguments = ServerArgs(model_path="none", device="cpu")
_arguments._mamba_cache_chunk_size = 64
publish(_arguments, role="tokenizer")

from bench.core.load import TokenIds  # noqa: E402
from bench.rivals.cells import window_tokens  # noqa: E402
from bench.rivals.sglang_pools import FullPool, WindowPool  # noqa: E402
from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402

CLASSES = {"python": "UnifiedTreeCore", "rust": "RustUnifiedTreeCore"}
now_ns = time.thread_time_ns


def key_of(tokens: TokenIds) -> array[int]:
    """The form of token ids that both of its cores take."""
    key = array("q")
    key.frombytes(tokens.astype("int64").tobytes())
    return key


@dataclass(frozen=True, slots=True)
class Sizes:
    """Capacities; the window's is in tokens too."""

    full_tokens: int
    window_tokens: int
    states: int


@dataclass(slots=True)
class Given:
    """One insertion, ready to be timed; what it takes of the pools is taken."""

    params: Any
    state: Any


class Rival:
    """One cache with its pools, driven as a scheduler does: match, lock, insert, unlock."""

    def __init__(self, core: str, shape: str, page_tokens: int, sizes: Sizes) -> None:
        self.page_tokens, self.window = page_tokens, window_tokens(shape)
        types = [ComponentType.FULL]
        self.pool: Any = FullPool(sizes.full_tokens, page_tokens)
        requests = None
        if self.window:
            types.append(ComponentType.SWA)
            self.pool = WindowPool(sizes.full_tokens, sizes.window_tokens, page_tokens)
        self.states: Any = None
        if "MAMBA" in shape:
            types.append(ComponentType.MAMBA)
            self.states = MambaSlotAllocator(sizes.states, "cpu")
            requests = object.__new__(HybridReqToTokenPool)
            requests.mamba_allocator = self.states
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=requests,
            token_to_kv_pool_allocator=self.pool,
            page_size=page_tokens,
            tree_components=tuple(types),
            sliding_window_size=self.window or None,
            enable_mamba_extra_buffer=self.states is not None,
            tree_core_backend=core,
        )
        self.cache = UnifiedRadixCache(params)
        assert type(self.cache.tree_core).__name__ == CLASSES[core]

    def match(self, key: array[int]) -> Any:
        return self.cache.match_prefix(MatchPrefixParams(key=RadixKey(key)))

    def window_start(self, end: int) -> int:
        """Where the window begins that a request still has which computed `end` tokens, on the grid of pages.

        Its cache reuses a boundary with a whole window of tokens before it, and not less than a page.
        """
        if not self.window:
            return end
        return max(0, (end - 1 - max(self.window, self.page_tokens)) // self.page_tokens * self.page_tokens)

    def needs(self, start: int, end: int) -> tuple[int, int, int]:
        """Tokens of full attention, of the window, and states, that an insertion takes."""
        return end - start, end - max(start, self.window_start(end)), int(self.states is not None)

    def short(self, start: int, end: int) -> tuple[int, int, int]:
        """What of it is not free."""
        full, window, states = self.needs(start, end)
        return (
            max(0, full - self.pool.full_available_size()),
            max(0, window - self.pool.swa_available_size()) if self.window else 0,
            max(0, states - self.states.available_size()) if states else 0,
        )

    def evict(self, short: tuple[int, int, int]) -> None:
        full, window, states = short
        self.cache.evict_for_alloc(EvictParams(num_tokens=full, swa_num_tokens=window, mamba_num=states))

    def free(self) -> tuple[int, int, int]:
        """What is free in each pool."""
        window = self.pool.swa_available_size() if self.window else 0
        return self.pool.full_available_size(), window, self.states.available_size() if self.states else 0

    def give(self, key: array[int], before: torch.Tensor) -> Given:
        """An insertion of the whole key: new slots behind those that the request has from the cache."""
        start = len(before)
        full, window, states = self.needs(start, len(key))
        slots = torch.cat([before, self.pool.take(full, window)])
        params = InsertParams(key=RadixKey(key), value=slots, prev_prefix_len=start, inserted_len=start)
        if self.window:
            params.set_evicted_seqlen(ComponentType.SWA, self.window_start(len(key)))
        if states:
            params.mamba_value = self.states.alloc(1)
        return Given(params, params.mamba_value)

    def slots(self, found: Any) -> torch.Tensor:
        """The slots of a match."""
        return self.cache.path_device_indices(found.last_device_node)

    def grow(self, key: array[int], before: torch.Tensor) -> torch.Tensor:
        """Inserts a key, of which the cache has `before` already; gives the slots of all of it."""
        given = self.give(key, before)
        slots = given.params.value.clone()
        self.settle(given, self.cache.insert(given.params))
        return slots

    def settle(self, given: Given, result: Any) -> None:
        """Takes a state back that the tree had already."""
        if result.mamba_exist:
            self.states.free(given.state)
