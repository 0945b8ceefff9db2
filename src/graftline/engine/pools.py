"""The tensors of one component on the device: slot `i` of every tensor belongs together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from graftline.engine.rows import CpuRows, CudaRows
from graftline.errors import ConfigError
from graftline.plan import Slots
from graftline.tiers import Gate, RowPart, Rows


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape (without the slot axis) and type of what one slot holds in one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


class ComponentPool:
    """All tensors of one component, each of shape `[slots, ...]`.

    For an attention component a slot holds one page: `"3.key"` is `[slots, page_tokens, heads, dim]`.
    For `state` a slot holds one state of all layers. Tensors start as zeros.

    Attributes:
        slot_bytes: bytes of one slot in all tensors together.
        layout: names, types and shapes of the tensors, in the order in which a row of bytes holds them.
        parts: the same tensors as parts of a row, each with the layer that its name begins with.
        gate: where whoever reads a tensor waits for what is being loaded of it (rule H-10).
    """

    def __init__(
        self, name: str, slots: int, specs: Mapping[str, TensorSpec], device: torch.device | str
    ) -> None:
        if slots < 1:
            raise ConfigError(f"pool '{name}' has {slots} slots", hint="give every component at least one")
        self.name = name
        self.slots = slots
        self.slot_bytes = sum(spec.slot_bytes for spec in specs.values())
        self.tensors: dict[str, torch.Tensor] = {
            key: torch.zeros((slots, *spec.shape), dtype=spec.dtype, device=device)
            for key, spec in specs.items()
        }
        ordered = sorted(specs)
        self.layout = ";".join(f"{key}:{specs[key].dtype}:{list(specs[key].shape)}" for key in ordered)
        tensors = {key: self.tensors[key] for key in ordered}
        self._rows = CudaRows(tensors) if torch.device(device).type == "cuda" else CpuRows(tensors)
        self.parts: tuple[RowPart, ...] = self._rows.parts
        self.gate = Gate()

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor, once what was loaded of it is there."""
        if self.gate.is_open:
            self.gate.wait(self.name, name)
        return self.tensors[name]

    def copy(self, source: int, target: int) -> None:
        """Clone one slot onto another in every tensor, bit for bit."""
        for name in self.tensors:
            tensor = self.tensor(name)
            tensor[target].copy_(tensor[source])

    def zero(self, slot: int) -> None:
        """Fill one slot with zeros in every tensor."""
        for tensor in self.tensors.values():
            tensor[slot].zero_()

    def export_rows(self, slots: Slots, rows: Rows) -> None:
        """Copy slots out as bytes: `rows[i]` gets all tensors of `slots[i]`; uint8, shape (n, slot_bytes).

        May run on any thread while others use other slots. The bytes are in `rows` on return.
        """
        self._rows.export_rows(slots, rows)

    def import_rows(self, slots: Slots, rows: Rows) -> None:
        """Copy bytes that `export_rows` gave into slots, bit for bit; they are there on return."""
        self._rows.import_rows(slots, rows)

    def settle(self) -> None:
        """Wait for steps that still read slots which were given away since."""
        self._rows.settle()

    def import_part(self, slots: Slots, values: Rows, part: RowPart) -> None:
        """Copy one tensor's bytes into slots; they are there on return."""
        self._rows.import_part(slots, values, part)
