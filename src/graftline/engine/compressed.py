"""Compressed KV of DeepSeek-V4, kept as sidecars in the page slots of `full`.

Its compressor turns every `rate` tokens (a window) into one entry that all later queries see. Beside its
sliding-window KV, a layer keeps per page of `full`:

    entries       the entries of the page's windows, page_tokens / rate of them
    tail          projections of the tokens of a window that is not complete yet, up to rate of them
    overlap       what the page's last complete window hands on to the next window (CSA only)

for its compressor and, in CSA layers, once more for the compressor of its indexer. Since page_tokens is a
multiple of every rate, no window spans two pages: at a page boundary the tail is empty, the slots of the
pages before it hold all that is needed, and a prefix is shared by sharing slots, as with plain KV. Within a
page the tail makes any cut of the prompt into chunks give the same windows.

The layer runs one row at a time; the interface below is the one that the library's compressors call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from graftline.engine.batch import Row, to_device
from graftline.engine.kv_layers import PagedLayer
from graftline.engine.layouts import FULL
from graftline.engine.state import EngineState


def compressed_layers(config: Any) -> Mapping[str, Callable[..., PagedLayer]]:
    """Makers of the layer objects per layer type; empty for models without compressed KV."""
    rates = getattr(config.get_text_config(decoder=True), "compress_rates", None) or {}
    return {kind: partial(CompressedLayer, rate=rate) for kind, rate in rates.items()}


@dataclass(frozen=True, slots=True)
class WindowPlaces:
    """Where one row of a step finds and puts compressed values, for one rate.

    Attributes:
        first, stop: windows that the step completes, half open.
        entry_places: place `slot * entries per page + offset` of each such window's entry.
        handing: numbers (from `first`) of those that are the last complete ones of their page.
        handing_slots: slots of these pages.
        tail_slot, tail_tokens: where the row's incomplete window began before the step, and its tokens.
        next_tail_slot, next_tail_tokens: the same after the step.
        prior_slot: page slot of the window before `first`; None at the start of the sequence.
    """

    first: int
    stop: int
    entry_places: torch.Tensor
    handing: torch.Tensor
    handing_slots: torch.Tensor
    tail_slot: int
    tail_tokens: int
    next_tail_slot: int
    next_tail_tokens: int
    prior_slot: int | None

    @classmethod
    def of(cls, row: Row, rate: int, page_tokens: int, device: torch.device) -> WindowPlaces:
        """Places for one row."""
        table, per_page = row.tables[FULL], page_tokens // rate
        first, stop = row.start // rate, row.end // rate
        windows = np.arange(first, stop)
        slots = table[windows // per_page].astype(np.int64)
        handing = np.flatnonzero((windows % per_page == per_page - 1) | (windows == stop - 1))
        arrays = {
            "places": slots * per_page + windows % per_page,
            "handing": handing,
            "slots": slots[handing],
        }
        index = to_device(arrays, device)
        return cls(
            first=first,
            stop=stop,
            entry_places=index["places"],
            handing=index["handing"],
            handing_slots=index["slots"],
            tail_slot=int(table[row.start // page_tokens]),
            tail_tokens=row.start - first * rate,
            next_tail_slot=int(table[(row.end - 1) // page_tokens]),
            next_tail_tokens=row.end - stop * rate,
            prior_slot=int(table[(first - 1) // per_page]) if first else None,
        )


class CompressedLayer(PagedLayer):
    """Sliding-window KV of one layer with its compressed KV beside it.

    `name` in the methods is `compressor` or `indexer`. All tensors have a first axis of one row.
    """

    def __init__(self, state: EngineState, index: int, component: str, *, rate: int) -> None:
        super().__init__(state, index, component)
        self.rate = rate

    def _places(self) -> WindowPlaces:
        step, planner = self.state.step, self.state.planner
        key = f"windows.{self.rate}"
        if key not in step.notes:
            step.notes[key] = WindowPlaces.of(step.rows[0], self.rate, planner.page_tokens, planner.device)
        places: WindowPlaces = step.notes[key]
        return places

    def _pool(self, name: str) -> torch.Tensor:
        return self.state.tensor(FULL, f"{self.index}.{name}")

    def _record(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.state.record(FULL, f"{self.index}.{name}", shape, dtype)

    def store_compression_weights(
        self, name: str, kv: torch.Tensor, gate: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Join the tail with the new tokens' projections, (1, n, width), and keep the new tail.

        Returns the projections of all windows that are complete now, (1, windows * rate, width) twice, and
        the position where the first of them begins.
        """
        places, out = self._places(), []
        for part, new in (("tail_kv", kv), ("tail_gate", gate)):
            if self.state.recording:
                self._record(f"{name}.{part}", (self.rate, new.shape[-1]), new.dtype)
                out.append(new[:, : places.stop * self.rate])
                continue
            pool = self._pool(f"{name}.{part}")
            tail = pool[places.tail_slot, : places.tail_tokens][None]
            joined = torch.cat([tail, new], dim=1) if places.tail_tokens else new
            complete = (places.stop - places.first) * self.rate
            pool[places.next_tail_slot, : places.next_tail_tokens].copy_(joined[0, complete:])
            out.append(joined[:, :complete])
        return out[0], out[1], places.first * self.rate

    def update_compressor_states(self, name: str, compressed: torch.Tensor) -> torch.Tensor:
        """Store the new windows' entries, (1, windows, dim), and return all of the row, (1, entries, dim)."""
        places = self._places()
        if self.state.recording:
            entries = self.state.planner.page_tokens // self.rate
            self._record(f"{name}.entries", (entries, compressed.shape[-1]), compressed.dtype)
            return compressed
        pool = self._pool(f"{name}.entries")
        pool.view(-1, pool.shape[-1]).index_copy_(0, places.entry_places, compressed[0])
        pages = self.state.step.components[FULL].pages
        if pages is None:
            return compressed
        held = pool.view(pool.shape[0], -1).index_select(0, pages).view(-1, pool.shape[-1])
        return held[None, : places.stop]

    def update_overlap_state(
        self, name: str, chunk_kv: torch.Tensor, chunk_gate: torch.Tensor, head_dim: int
    ) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Keep what the new windows, (1, windows, rate, 2 * head_dim), hand on; return what the first gets.

        Returns the first half of the projections of the window before, (1, rate, head_dim) twice, or None
        twice at the start of a sequence.
        """
        places = self._places()
        out: list[torch.Tensor | None] = []
        for part, chunk in (("overlap_kv", chunk_kv), ("overlap_gate", chunk_gate)):
            first_half = chunk[0, :, :, :head_dim]
            if self.state.recording:
                self._record(f"{name}.{part}", (self.rate, head_dim), chunk.dtype)
                out.append(None)
                continue
            pool = self._pool(f"{name}.{part}")
            # Cloned: a page that is being filled is overwritten on the next line.
            out.append(None if places.prior_slot is None else pool[places.prior_slot][None].clone())
            pool.index_copy_(0, places.handing_slots, first_half.index_select(0, places.handing))
        return out[0], out[1]
