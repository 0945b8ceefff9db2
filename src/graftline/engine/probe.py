"""Finds out by short forwards what a model stores, and whether packed steps give the library's own logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from graftline.engine.batch import Row
from graftline.engine.layouts import STATE, ModelLayout
from graftline.engine.state import EngineState
from graftline.errors import UnsupportedModelError

PROBE_TOKENS = 12
# Largest difference of logits from the library's, relative to their spread. A layer that bypasses the pools is
# wrong by about the spread itself; rounding of low precision types, with experts that flip, stays below this.
WORST_DIFFERENCE = {torch.float32: 2e-2, torch.float64: 2e-2}
WORST_DIFFERENCE_LOW_PRECISION = 0.5


def probe_tokens(vocab_size: int, count: int = PROBE_TOKENS) -> np.ndarray:
    """Some token ids, int64."""
    return (np.arange(count, dtype=np.int64) * 7 + 3) % vocab_size


def library_logits(model: Any, tokens: np.ndarray, device: torch.device) -> torch.Tensor:
    """Logits of every token by the unpatched model without any cache, float32 (n, vocab)."""
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(tokens)[None].to(device), use_cache=False)
    return out.logits[0].float()


def probe_row(tokens: np.ndarray, start: int, layout: ModelLayout, page_tokens: int, number: int = 0) -> Row:
    """A row over pages of its own: row `number` uses the slots behind those of the rows before it."""
    pages = -(-(start + len(tokens)) // page_tokens)
    table = np.arange(number * pages, (number + 1) * pages, dtype=np.int32)
    return Row(tokens, start, {c.name: table for c in layout.components if c.name != STATE}, number)


def check_specs(state: EngineState) -> None:
    """Compare what the probe has seen with the plan; refuse a model that stores less or more."""
    for component in state.layout.components:
        seen = {int(name.split(".")[0]) for name in state.specs.get(component.name, {})}
        if wrong := seen.symmetric_difference(component.layers):
            layer = min(wrong)
            reason = f"its layer {'stores nothing in' if layer not in seen else 'stores something in'} "
            raise UnsupportedModelError(
                state.layout.model_type, f"{reason}'{component.name}', unlike its configuration says", layer
            )
    if extra := set(state.specs) - {c.name for c in state.layout.components}:
        raise UnsupportedModelError(state.layout.model_type, f"it stores unplanned values: {sorted(extra)}")


def check_logits(
    step: Callable[[list[Row]], torch.Tensor],
    reference: torch.Tensor,
    tokens: np.ndarray,
    layout: ModelLayout,
    page_tokens: int,
    slots: Mapping[str, int],
    dtype: torch.dtype,
) -> None:
    """Run the probe's tokens in chunks, as two rows of one step where the pools allow, and compare.

    Raises:
        UnsupportedModelError: when the logits are not those of the library.
    """
    pages = -(-len(tokens) // page_tokens)
    rows = 1
    if all(count >= (2 if name == STATE else 2 * pages) for name, count in slots.items()):
        rows = 2
    elif any(name != STATE and count < pages for name, count in slots.items()):
        return
    cut = len(tokens) // 2
    for first, stop in ((0, cut), (cut, len(tokens) - 1), (len(tokens) - 1, len(tokens))):
        batch = [probe_row(tokens[:stop][: stop - n], 0, layout, page_tokens, n) for n in range(rows)]
        batch = [
            Row(row.tokens[max(0, first - n) :], max(0, first - n), _tables(layout, pages, n), n)
            for n, row in enumerate(batch)
        ]
        logits = step(batch)
        for n in range(rows):
            _compare(logits[n], reference[stop - n - 1], layout, dtype)


def _tables(layout: ModelLayout, pages: int, number: int) -> dict[str, np.ndarray]:
    table = np.arange(number * pages, (number + 1) * pages, dtype=np.int32)
    return {c.name: table for c in layout.components if c.name != STATE}


def _compare(logits: torch.Tensor, reference: torch.Tensor, layout: ModelLayout, dtype: torch.dtype) -> None:
    bound = WORST_DIFFERENCE.get(dtype, WORST_DIFFERENCE_LOW_PRECISION)
    difference = float((logits - reference).abs().max() / reference.std())
    if not difference <= bound:
        reason = f"packed steps give other logits than the library (by {difference:.2g} of their spread)"
        raise UnsupportedModelError(layout.model_type, reason)
