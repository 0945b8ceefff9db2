"""Pools of values: what a slot number stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from graftline.plan import Slots

Rows: TypeAlias = npt.NDArray[np.uint8]
"""Values as bytes, one row a slot: shape (slots, slot_bytes)."""


class ValuePool(Protocol):
    """Values of one component, sidecars included; all tensors share the slot numbers (rule R-7)."""

    def copy(self, source: int, target: int) -> None:
        """Overwrites slot `target` with slot `source`, bit for bit, in every tensor."""


class RowPool(ValuePool, Protocol):
    """A pool whose slots can leave it as rows of bytes, for the tiers below (rule H-1).

    A row is the bytes of every tensor for one slot, one tensor after the other in the order of `layout`.
    Both calls run on a copy thread while the owner computes in other slots.
    """

    slot_bytes: int
    layout: str
    """Names, types and shapes of the tensors, in the order in which a row holds them."""

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out; `rows` has shape (len(slots), slot_bytes)."""

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""


@dataclass(frozen=True, slots=True)
class RowPart:
    """One tensor of a pool: which bytes of a row it is, and the layer of the model that reads it."""

    tensor: str
    layer: int
    columns: slice


class PartPool(RowPool, Protocol):
    """A pool that can be filled tensor by tensor, for loads that are read while they come (rule H-10)."""

    parts: Sequence[RowPart]

    def settle(self) -> None:
        """Waits for whatever still reads slots that were given away; before the first `import_part`."""

    def import_part(self, slots: Slots, values: Rows, part: RowPart) -> None:
        """Copies one tensor's bytes into slots; `values` has shape (len(slots), bytes of the part)."""


def has_parts(pool: RowPool) -> TypeGuard[PartPool]:
    """Whether a pool can be filled tensor by tensor."""
    return hasattr(pool, "import_part")


class NumpyPool:
    """A pool of numpy arrays, for embedding without torch.

    Args:
        arrays: name to array, each of shape (slots, ...) and contiguous; owned by the pool, written by the
            caller. Their order is that in which a step reads them.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.arrays = dict(arrays)
        self._views = {name: a.reshape(len(a), -1).view(np.uint8) for name, a in self.arrays.items()}
        sizes = {name: view.shape[1] for name, view in self._views.items()}
        self.parts = row_parts(sizes, range(len(sizes)))
        self.slot_bytes = sum(sizes.values())
        self.layout = ";".join(f"{name}:{a.dtype.str}:{a.shape[1:]}" for name, a in self.arrays.items())

    @classmethod
    def zeros(cls, slots: int, shapes: Mapping[str, tuple[int, ...]], dtype: npt.DTypeLike) -> NumpyPool:
        """A pool of zeros; `shapes` are those of one slot."""
        return cls({name: np.zeros((slots, *shape), dtype) for name, shape in shapes.items()})

    def copy(self, source: int, target: int) -> None:
        """Overwrites slot `target` with slot `source`, bit for bit, in every array."""
        for array in self.arrays.values():
            array[target] = array[source]

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies slots out."""
        for part in self.parts:
            rows[:, part.columns] = self._views[part.tensor][slots]

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        for part in self.parts:
            self._views[part.tensor][slots] = rows[:, part.columns]

    def settle(self) -> None:
        """Nothing reads later than it says."""

    def import_part(self, slots: Slots, values: Rows, part: RowPart) -> None:
        """Copies one array's bytes into slots."""
        self._views[part.tensor][slots] = values


def row_parts(tensor_bytes: Mapping[str, int], layers: Iterable[int]) -> tuple[RowPart, ...]:
    """Parts of a row: bytes and layer of each tensor, in the order in which a row holds them."""
    parts, first = [], 0
    for (name, count), layer in zip(tensor_bytes.items(), layers, strict=True):
        parts.append(RowPart(name, layer, slice(first, first + count)))
        first += count
    return tuple(parts)
