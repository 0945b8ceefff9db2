"""Pools of values: what a slot number stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

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


class NumpyPool:
    """A pool of numpy arrays, for embedding without torch.

    Args:
        arrays: name to array, each of shape (slots, ...) and contiguous; owned by the pool, written by the
            caller.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.arrays = dict(arrays)
        self._views = [array.reshape(len(array), -1).view(np.uint8) for array in self.arrays.values()]
        self.slot_bytes = sum(view.shape[1] for view in self._views)
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
        first = 0
        for view in self._views:
            rows[:, first : first + view.shape[1]] = view[slots]
            first += view.shape[1]

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copies rows into slots."""
        first = 0
        for view in self._views:
            view[slots] = rows[:, first : first + view.shape[1]]
            first += view.shape[1]
