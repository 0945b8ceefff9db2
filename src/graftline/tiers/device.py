"""Pools of values on the device: what a slot number stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class ValuePool(Protocol):
    """Values of one component, sidecars included; all tensors share the slot numbers (rule R-7)."""

    def copy(self, source: int, target: int) -> None:
        """Overwrites slot `target` with slot `source`, bit for bit, in every tensor."""


class NumpyPool:
    """A pool of numpy arrays, for embedding without torch.

    Args:
        arrays: name to array, each of shape (slots, ...); owned by the pool, written by the caller.
    """

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.arrays = dict(arrays)

    @classmethod
    def zeros(cls, slots: int, shapes: Mapping[str, tuple[int, ...]], dtype: npt.DTypeLike) -> NumpyPool:
        """A pool of zeros; `shapes` are those of one slot."""
        return cls({name: np.zeros((slots, *shape), dtype) for name, shape in shapes.items()})

    def copy(self, source: int, target: int) -> None:
        """Overwrites slot `target` with slot `source`, bit for bit, in every array."""
        for array in self.arrays.values():
            array[target] = array[source]
