"""Rows of one step, and the order in which they are packed.

All new tokens of a step lie in one packed row of shape (1, total_tokens). Rows are sorted so that
those of equal length and equal freshness are neighbours: a group of them can then run through a
recurrent layer or one attention call as a plain batch, cut out of the packed row without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from graftline.engine.reads import ComponentStep


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step.

    Attributes:
        tokens: the new tokens, shape (n,), int64; their absolute positions are `start .. start + n`.
        start: tokens of the sequence that earlier steps have computed or a prefix brings along.
        tables: per attention component the slot of each absolute page, int32, shape
            (at least ceil((start + n) / page_tokens),); -1 where a page is not held.
        state_slot: the sequence's own slot in component `state`. It is read, unless `start` is 0, and
            then overwritten with the state after the last token. None for models without states.
    """

    tokens: np.ndarray
    start: int
    tables: Mapping[str, np.ndarray]
    state_slot: int | None

    @property
    def end(self) -> int:
        """Tokens of the sequence after the step."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Neighbouring rows of the packed order with equal length and equal freshness.

    Attributes:
        first_token: place of the group's first token in the packed row.
        rows: number of rows.
        row_tokens: new tokens of each row.
        fresh: whether the rows begin their sequences, so that no state is read.
        state_slots: their slots in component `state`, empty for models without states.
        state_index: the same as a tensor on the device, int64.
    """

    first_token: int
    rows: int
    row_tokens: int
    fresh: bool
    state_slots: tuple[int, ...]
    state_index: torch.Tensor

    @property
    def tokens(self) -> int:
        """New tokens of all rows together."""
        return self.rows * self.row_tokens


class PackedStep:
    """Everything that the layers need to know about one step; made by `StepPlanner.plan`.

    Attributes:
        rows: the rows in packed order.
        groups: runs of equal rows, covering the packed row from left to right.
        tokens, positions: shape (1, total_tokens), int64.
        last: places of each row's last token in the packed row, in the caller's order.
        components: what is written and read per attention component.
        last_layer: index of the layer that updated its KV last.
        notes: values that live as long as the step, for modules that share them.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        groups: tuple[RowGroup, ...],
        index: Mapping[str, torch.Tensor],
        components: Mapping[str, ComponentStep],
    ) -> None:
        self.rows = rows
        self.groups = groups
        self.tokens = index["tokens"][None]
        self.positions = index["positions"][None]
        self.last = index["last"]
        self.components = components
        self.last_layer = 0
        self.notes: dict[str, Any] = {}

    @property
    def total_tokens(self) -> int:
        """New tokens of all rows together."""
        return int(self.tokens.shape[1])


def packed_order(rows: Sequence[Row]) -> list[int]:
    """Order in which rows are packed: fresh ones last, shorter chunks first, shorter sequences first."""
    return sorted(range(len(rows)), key=lambda i: (rows[i].start == 0, len(rows[i].tokens), rows[i].end))


def group_runs(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Runs `(first, stop)` of rows that form one group, for rows in packed order."""
    runs, first = [], 0
    for _, run in groupby(rows, key=lambda row: (row.start == 0, len(row.tokens))):
        stop = first + len(list(run))
        runs.append((first, stop))
        first = stop
    return runs


def to_device(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    """Move integer arrays to the device in one transfer; the results are views of one tensor."""
    sizes = [len(array) for array in arrays.values()]
    joined = torch.from_numpy(np.concatenate(list(arrays.values())).astype(np.int64, copy=False))
    if device.type != "cpu":
        joined = (
            joined.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else joined.to(device)
        )
    return dict(zip(arrays, joined.split(sizes), strict=True))
