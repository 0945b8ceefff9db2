"""Pools for SGLang's cache, as counters: slots are numbered and never looked up, so that the tree is timed.

The counters stand where its token allocators stand and answer the calls that its cache makes of them.
"""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator


class FullPool:
    """Slots of full attention."""

    def __init__(self, capacity: int, page_tokens: int) -> None:
        self.size = self.size_full = self.free_full = capacity
        self.page_size, self.device = page_tokens, "cpu"
        self._next = 1

    def take(self, full: int, window: int = 0) -> torch.Tensor:
        """Numbers for `full` tokens; a pool with a window has `window` of them in that too."""
        assert full <= self.free_full
        assert window >= 0
        self.free_full -= full
        self._next += full
        return torch.arange(self._next - full, self._next, dtype=torch.int64)

    def available_size(self) -> int:
        return self.free_full

    def full_available_size(self) -> int:
        return self.free_full

    def free(self, slots: torch.Tensor) -> None:
        self.free_full += slots.numel()

    def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self.free_full += slots.numel()

    def free_full_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self.free_full += slots.numel()

    def mamba_full_cache_donor(self) -> None:
        return None

    def get_kvcache(self) -> None:
        return None


class _FullPart:
    """The full half of `WindowPool`, which its cache calls apart."""

    def __init__(self, pool: WindowPool) -> None:
        self._pool = pool

    def available_size(self) -> int:
        return self._pool.free_full

    def free(self, slots: torch.Tensor) -> None:
        self._pool.free_full += slots.numel()

    def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self._pool.free_full += slots.numel()


class WindowPool(SWATokenToKVPoolAllocator):  # type: ignore[misc]
    """Slots of full and of sliding-window attention; a token has the same number in both."""

    def __init__(self, capacity: int, window_capacity: int, page_tokens: int) -> None:
        # The parent's own start allocates memory; the class is wanted for its type alone.
        self._size_full, self._size_swa = capacity, window_capacity
        self.free_full, self.free_window = capacity, window_capacity
        self.page_size, self.device = page_tokens, "cpu"
        self.full_attn_allocator = _FullPart(self)
        self._swa_req_ring = False
        self._next = 1

    def take(self, full: int, window: int = 0) -> torch.Tensor:
        assert full <= self.free_full
        assert window <= self.free_window
        self.free_window -= window
        self.free_full -= full
        self._next += full
        return torch.arange(self._next - full, self._next, dtype=torch.int64)

    def available_size(self) -> int:
        return min(self.free_full, self.free_window)

    def full_available_size(self) -> int:
        return self.free_full

    def swa_available_size(self) -> int:
        return self.free_window

    def free_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self.free_full += slots.numel()
        self.free_window += slots.numel()

    def free_full_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self.free_full += slots.numel()

    def free_swa_segment(self, slots: torch.Tensor, *, start_pos: int) -> None:  # noqa: ARG002
        self.free_window += slots.numel()

    def free_swa(self, slots: torch.Tensor) -> None:
        self.free_window += slots.numel()

    def translate_swa_indices_for_transfer(self, slots: torch.Tensor) -> torch.Tensor:
        return slots

    def set_full_to_swa_mapping(self, full: torch.Tensor, window: torch.Tensor) -> None:
        """Nothing to note: the numbers are equal."""

    def clear_full_to_swa_mapping(self, full: torch.Tensor) -> None:
        """Nothing to note."""

    def mamba_full_cache_donor(self) -> None:
        return None
