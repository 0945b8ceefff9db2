"""Runs attention modules that can only take one sequence row by row, inside a packed step.

Attention that chooses tokens with an indexer or keeps compressed KV looks at all keys of one sequence at a
time. For its modules the step is narrowed to one row: the cache, the attention function and the modules
inside then see a step of that row alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from graftline.engine.batch import PackedStep
from graftline.engine.inspection import names_used
from graftline.engine.layouts import KINDS
from graftline.engine.reads import KvSpan
from graftline.engine.slices import joined, tokens_of
from graftline.engine.state import EngineState

MASK_ARGUMENT = "attention_mask"


def wrap_segments(model: Any, state: EngineState) -> None:
    """Replace, on the instances, the forward of attention modules that need one row at a time."""
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        if index is None or index >= len(state.layout.layers):  # extra layers for multi-token prediction
            continue
        plan, names = state.layout.layers[index], names_used(module)
        if KINDS[plan.kind].sidecars and {"update", "get_interface"} <= names:
            module.forward = _row_by_row(module.forward, state, str(plan.attention))


def rows_of(step: PackedStep, state: EngineState) -> list[PackedStep]:
    """The step's rows as steps of their own, in packed order; made once per step."""
    if len(step.rows) == 1:
        return [step]
    if "rows" not in step.notes:
        step.notes["rows"] = [state.planner.plan([row]) for row in step.rows]
    rows: list[PackedStep] = step.notes["rows"]
    return rows


def _row_by_row(forward: Callable[..., Any], state: EngineState, component: str) -> Callable[..., Any]:
    """Forward that runs once per row and is given the mask of `component`, which such modules add to."""
    signature = inspect.signature(forward)
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    def run(step: PackedStep, arguments: dict[str, Any]) -> Any:
        arguments[MASK_ARGUMENT] = _mask(step, component, arguments)
        state.current = step
        return forward(**arguments)

    def segmented_forward(*args: Any, **kwargs: Any) -> Any:
        whole = state.step
        arguments = signature.bind(*args, **kwargs).arguments
        arguments.update(arguments.pop(extra, {}))
        rows = rows_of(whole, state)
        try:
            if len(rows) == 1:
                return run(whole, arguments)
            parts, first_token = [], 0
            for step in rows:
                section = _Section(first_token, 1, step.total_tokens)
                parts.append((section, run(step, tokens_of(arguments, section, whole.total_tokens))))
                first_token += step.total_tokens
            return joined(parts)
        finally:
            state.current = whole

    return segmented_forward


class _Section:
    def __init__(self, first_token: int, rows: int, row_tokens: int) -> None:
        self.first_token, self.rows, self.row_tokens = first_token, rows, row_tokens


def _mask(step: PackedStep, component: str, arguments: dict[str, Any]) -> torch.Tensor:
    span: KvSpan = step.components[component].spans[0]
    dtype = next(v.dtype for v in arguments.values() if isinstance(v, torch.Tensor) and v.is_floating_point())
    return span.mask(dtype)
