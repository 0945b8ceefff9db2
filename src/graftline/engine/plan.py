"""From rows to a packed step: all index arrays of a step are made here, and moved to the device at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from graftline.components import Checkpoint
from graftline.engine.batch import PackedStep, Row, RowGroup, group_runs, packed_order, to_device
from graftline.engine.layouts import ModelLayout
from graftline.engine.reads import ComponentReads


class StepPlanner:
    """Makes packed steps for one model.

    Args:
        layout: components of the model.
        page_tokens: tokens of a page.
        device: where the index tensors go.
    """

    def __init__(self, layout: ModelLayout, page_tokens: int, device: torch.device) -> None:
        self.page_tokens = page_tokens
        self.device = device
        self.attention = [plan for plan in layout.components if not isinstance(plan.rule, Checkpoint)]
        self.has_state = len(self.attention) < len(layout.components)

    def plan(self, rows: Sequence[Row]) -> PackedStep:
        """Pack the rows, in an order of its own; `PackedStep.last` is in the caller's order."""
        order = packed_order(rows)
        packed = [rows[i] for i in order]
        runs = group_runs(packed)
        reads = [ComponentReads(c.name, c.rule, self.page_tokens, packed, runs) for c in self.attention]
        ends = np.cumsum([len(row.tokens) for row in packed])
        last = np.empty(len(rows), dtype=np.int64)
        last[order] = ends - 1
        arrays = {
            "tokens": np.concatenate([row.tokens for row in packed]),
            "positions": np.concatenate([np.arange(row.start, row.end) for row in packed]),
            "last": last,
        }
        if self.has_state:
            arrays["state"] = np.array([row.state_slot for row in packed], dtype=np.int64)
        for read in reads:
            arrays.update(read.arrays)
        index = to_device(arrays, self.device)
        groups = self._groups(packed, runs, index)
        return PackedStep(packed, groups, index, {read.name: read.build(index) for read in reads})

    def _groups(
        self, rows: Sequence[Row], runs: Sequence[tuple[int, int]], index: dict[str, torch.Tensor]
    ) -> tuple[RowGroup, ...]:
        groups, first_token = [], 0
        for first, stop in runs:
            members = rows[first:stop]
            slots = tuple(row.state_slot for row in members if row.state_slot is not None)
            state_index = index["state"][first:stop] if self.has_state else index["last"][:0]
            row_tokens, fresh = len(members[0].tokens), members[0].start == 0
            groups.append(RowGroup(first_token, stop - first, row_tokens, fresh, slots, state_index))
            first_token += groups[-1].tokens
        return tuple(groups)
