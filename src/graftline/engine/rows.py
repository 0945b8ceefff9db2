"""Slots of a component's tensors as rows of bytes, for the tiers below the device (rule H-1).

A row is the bytes of one slot in every tensor, one tensor after the other. It is read and written on a copy
thread, beside the engine's: slots on the way are nobody else's, so only the order on a GPU needs care.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import torch

from graftline.plan import Slots
from graftline.tiers import Rows


def byte_views(tensors: Sequence[torch.Tensor]) -> list[tuple[slice, torch.Tensor]]:
    """Each tensor as bytes, shape (slots, bytes of a slot), and which part of a row it is. No copies."""
    views, first = [], 0
    for tensor in tensors:
        view = tensor.view(len(tensor), -1).view(torch.uint8)
        views.append((slice(first, first + view.shape[1]), view))
        first += view.shape[1]
    return views


class CpuRows:
    """Rows of tensors in host memory."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._views = [(part, view.numpy()) for part, view in byte_views(tensors)]

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        for part, view in self._views:
            rows[:, part] = view[slots]

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        for part, view in self._views:
            view[slots] = rows[:, part]


class CudaRows:
    """Rows of tensors on a GPU, through pinned memory on a stream of their own.

    The stream first waits for what the engine has queued so far: what it wrote to slots that leave, and
    what it still reads of slots that are filled anew. The call returns when the copy has ended, so whatever
    the engine queues afterwards finds it done.
    """

    BATCH_BYTES = 16 * 2**20

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._views = byte_views(tensors)
        self._device = tensors[0].device
        self._slot_bytes = self._views[-1][0].stop
        self._stream = torch.cuda.Stream(self._device)
        self._batch = max(1, self.BATCH_BYTES // self._slot_bytes)
        self._staging = torch.empty((self._batch, self._slot_bytes), dtype=torch.uint8, pin_memory=True)
        self._lock = threading.Lock()

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        for part, index, staging in self._batches(slots):
            gathered = torch.empty_like(staging, device=self._device)
            for columns, view in self._views:
                gathered[:, columns] = view.index_select(0, index)
            staging.copy_(gathered, non_blocking=True)
            self._wait()
            rows[part] = staging.numpy()

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        for part, index, staging in self._batches(slots):
            staging.numpy()[:] = rows[part]
            given = staging.to(self._device, non_blocking=True)
            for columns, view in self._views:
                view.index_copy_(0, index, given[:, columns])
            self._wait()

    def _batches(self, slots: Slots) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Parts of the slots, their index on the device and pinned memory for them, on the stream."""
        with self._lock, torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._stream.wait_stream(torch.cuda.default_stream(self._device))
            for first in range(0, len(slots), self._batch):
                part = slice(first, min(first + self._batch, len(slots)))
                index = torch.from_numpy(slots[part].astype("int64")).to(self._device)
                yield part, index, self._staging[: part.stop - part.start]

    def _wait(self) -> None:
        done = torch.cuda.Event()
        done.record(self._stream)
        done.synchronize()
