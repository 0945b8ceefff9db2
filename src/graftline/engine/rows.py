"""Slots of a component's tensors as rows of bytes, for the tiers below the device (rule H-1).

A row is the bytes of one slot in every tensor, one tensor after the other. It is read and written on a copy
thread, beside the engine's: slots on the way are nobody else's, so only the order on a GPU needs care.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from graftline.plan import Slots
from graftline.tiers import RowPart, Rows, row_parts


def parts_of(tensors: Mapping[str, torch.Tensor]) -> tuple[RowPart, ...]:
    """Which bytes of a row each tensor is; a tensor's name begins with the number of its layer."""
    sizes = {name: tensor[0].numel() * tensor.element_size() for name, tensor in tensors.items()}
    return row_parts(sizes, (int(name.split(".")[0]) for name in tensors))


def byte_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as bytes, shape (slots, bytes of a slot). No copy."""
    return tensor.view(len(tensor), -1).view(torch.uint8)


class CpuRows:
    """Rows of tensors in host memory."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.parts = parts_of(tensors)
        self._views = {name: byte_view(tensor).numpy() for name, tensor in tensors.items()}

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        for part in self.parts:
            rows[:, part.columns] = self._views[part.tensor][slots]

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        for part in self.parts:
            self.import_part(slots, rows[:, part.columns], part)

    def settle(self) -> None:
        """Steps have ended when they return."""

    def import_part(self, slots: Slots, values: Rows, part: RowPart) -> None:
        """Copies one tensor's bytes into slots."""
        self._views[part.tensor][slots] = values


@dataclass(frozen=True, slots=True)
class Batch:
    """Some slots on their way.

    Attributes:
        rows: which of the rows given they are.
        index: their numbers, on the device.
        staging: pinned memory for their bytes, shape (slots, bytes).
    """

    rows: slice
    index: torch.Tensor
    staging: torch.Tensor


class CudaRows:
    """Rows of tensors on a GPU, through pinned memory on a stream of their own.

    The stream first waits for what the engine has queued so far: what it wrote to slots that leave, and
    what it still reads of slots that are filled anew. The call returns when the copy has ended, so whatever
    the engine queues afterwards finds it done. `import_part` does not wait for the engine, which may be
    computing an earlier layer of the same load: `settle` did before.
    """

    STAGING_BYTES = 16 * 2**20

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.parts = parts_of(tensors)
        self._views = {name: byte_view(tensor) for name, tensor in tensors.items()}
        self._device = next(iter(tensors.values())).device
        self._stream = torch.cuda.Stream(self._device)
        slot_bytes = self.parts[-1].columns.stop
        staging_bytes = max(slot_bytes, self.STAGING_BYTES)
        self._staging = torch.empty(staging_bytes, dtype=torch.uint8, pin_memory=True)
        self._lock = threading.Lock()

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        self.settle()
        for batch in self._batches(slots, rows.shape[1]):
            gathered = torch.empty_like(batch.staging, device=self._device)
            for part in self.parts:
                gathered[:, part.columns] = self._views[part.tensor].index_select(0, batch.index)
            batch.staging.copy_(gathered, non_blocking=True)
            self._wait()
            rows[batch.rows] = batch.staging.numpy()

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        self.settle()
        for batch in self._batches(slots, rows.shape[1]):
            batch.staging.numpy()[:] = rows[batch.rows]
            given = batch.staging.to(self._device, non_blocking=True)
            for part in self.parts:
                self._views[part.tensor].index_copy_(0, batch.index, given[:, part.columns])
            self._wait()

    def settle(self) -> None:
        """The stream waits for what the engine has queued so far."""
        self._stream.wait_stream(torch.cuda.default_stream(self._device))

    def import_part(self, slots: Slots, values: Rows, part: RowPart) -> None:
        """Copies one tensor's bytes into slots."""
        for batch in self._batches(slots, values.shape[1]):
            batch.staging.numpy()[:] = values[batch.rows]
            given = batch.staging.to(self._device, non_blocking=True)
            self._views[part.tensor].index_copy_(0, batch.index, given)
            self._wait()

    def _batches(self, slots: Slots, slot_bytes: int) -> Iterator[Batch]:
        """The slots, as many at once as there is pinned memory for, on the stream."""
        step = len(self._staging) // slot_bytes
        with self._lock, torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for first in range(0, len(slots), step):
                rows = slice(first, min(first + step, len(slots)))
                index = torch.from_numpy(slots[rows].astype("int64")).to(self._device)
                count = rows.stop - first
                staging = self._staging[: count * slot_bytes].view(count, slot_bytes)
                yield Batch(rows, index, staging)

    def _wait(self) -> None:
        done = torch.cuda.Event()
        done.record(self._stream)
        done.synchronize()
