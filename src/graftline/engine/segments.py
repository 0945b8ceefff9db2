"""Runs attention modules that can only take one sequence row by row, inside a packed step.

Some modules ask the cache for one offset (relative position biases), choose tokens with an indexer, or keep
compressed KV. For these the step is narrowed to one row at a time: the cache, the attention function and the
modules inside then see a step of that row alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from graftline.engine.batch import PackedStep
from graftline.engine.layouts import KINDS
from graftline.engine.reads import KvSpan
from graftline.engine.slices import joined, tokens_of
from graftline.engine.state import EngineState

OFFSET_CALLS = ("get_query_offset(", "get_mask_sizes(")
MASK_ARGUMENT = "attention_mask"


def wrap_segments(model: Any, state: EngineState) -> None:
    """Replace, on the instances, the forward of attention modules that need one row at a time."""
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        if index is None or not hasattr(module, "forward"):
            continue
        source = inspect.getsource(type(module)) if type(module).__module__.startswith("transformers.") else ""
        sparse = bool(KINDS[state.layout.layers[index].kind].sidecars)
        if sparse and ".update(" in source:
            module.forward = _row_by_row(module.forward, state, str(state.layout.layers[index].attention))
        elif any(call in source for call in OFFSET_CALLS):
            module.forward = _row_by_row(module.forward, state, None)


def rows_of(step: PackedStep, state: EngineState) -> list[PackedStep]:
    """The step's rows as steps of their own, in packed order; made once per step."""
    if len(step.rows) == 1:
        return [step]
    if "rows" not in step.notes:
        step.notes["rows"] = [state.planner.plan([row]) for row in step.rows]
    rows: list[PackedStep] = step.notes["rows"]
    return rows


def _row_by_row(forward: Callable[..., Any], state: EngineState, masked: str | None) -> Callable[..., Any]:
    """Forward that runs once per row; `masked` names the component whose mask the module wants to be given."""
    signature = inspect.signature(forward)
    extra = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")

    def run(step: PackedStep, arguments: dict[str, Any]) -> Any:
        if masked is not None:
            arguments[MASK_ARGUMENT] = _mask(step, masked, arguments)
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
