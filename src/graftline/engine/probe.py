"""Finds out by short forwards what a model stores, and whether packed steps give the library's own logits.

A configuration can promise what the model's code does not keep: attention of its own that never asks for the
shared function, a window that is not applied, a state that hides on a module. Serving such a model would give
wrong text after a cache hit, so it is refused when the runner is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from graftline.engine.batch import Row
from graftline.engine.layouts import STATE, ModelLayout
from graftline.engine.pools import ComponentPool
from graftline.engine.state import EngineState
from graftline.errors import UnsupportedModelError

PROBE_TOKENS = 12
# Difference of logits from the library's, relative to their spread. In the long types the largest one counts.
# In short types rounding can flip an expert, which moves single logits by more than the spread; there the
# root mean square counts: unrelated logits differ by 1.4, those of a flipped expert by well below this.
WORST_DIFFERENCE = {torch.float32: 2e-2, torch.float64: 2e-2}
WORST_MEAN_DIFFERENCE = 0.7


def probe_tokens(vocab_size: int, count: int = PROBE_TOKENS) -> np.ndarray:
    """Some token ids, int64."""
    return (np.arange(count, dtype=np.int64) * 7 + 3) % vocab_size


def library_logits(model: Any, tokens: np.ndarray, device: torch.device) -> torch.Tensor:
    """Logits of every token by the unpatched model without any cache, float32 (n, vocab)."""
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(tokens)[None].to(device), use_cache=False)
    logits: torch.Tensor = out.logits[0].float()
    return logits


def probe_row(tokens: np.ndarray, start: int, layout: ModelLayout, pages: int, number: int = 0) -> Row:
    """Row `number` of several that own `pages` slots each, in order, and the state slot of their number."""
    table = np.arange(number * pages, (number + 1) * pages, dtype=np.int32)
    return Row(tokens, start, {c.name: table for c in layout.components if c.name != STATE}, number)


def check_specs(state: EngineState) -> None:
    """Compare what the model was seen to store, and how it attends, with the plan.

    Raises:
        UnsupportedModelError: when a layer stores less or more, or does its attention by itself.
    """
    layout = state.layout
    for component in layout.components:
        seen = {int(name.split(".")[0]) for name in state.specs.get(component.name, {})}
        if wrong := seen.symmetric_difference(component.layers):
            layer = min(wrong)
            what = "stores something in" if layer in seen else "stores nothing in"
            reason = f"it {what} '{component.name}', unlike its configuration says"
            raise UnsupportedModelError(layout.model_type, reason, layer)
    if extra := set(state.specs) - {c.name for c in layout.components}:
        raise UnsupportedModelError(layout.model_type, f"it stores unplanned values: {sorted(extra)}")
    for plan in layout.layers:
        if plan.attention is not None and plan.index not in state.attended:
            reason = "its attention does not go through the library's attention interface"
            raise UnsupportedModelError(layout.model_type, reason, plan.index)


class Trial:
    """Compares packed steps over the pools with the library's own logits.

    Args:
        layout: the model's layout.
        tokens: the tokens to run.
        reference: the library's logits for them, (n, vocab).
        page_tokens: tokens of a page.
    """

    def __init__(
        self, layout: ModelLayout, tokens: np.ndarray, reference: torch.Tensor, page_tokens: int
    ) -> None:
        self.layout = layout
        self.tokens = tokens
        self.reference = reference
        self.pages = -(-len(tokens) // page_tokens)

    def run(
        self,
        step: Callable[[Sequence[Row]], torch.Tensor],
        pools: dict[str, ComponentPool],
        dtype: torch.dtype,
    ) -> None:
        """Run the tokens in two chunks and a single step, as two unequal rows where the pools have room.

        Raises:
            UnsupportedModelError: when the logits are not those of the library.
        """
        needed = {name: 1 if name == STATE else self.pages for name in pools}
        rows = min(2, *(pools[name].slots // slots for name, slots in needed.items()))
        count, cut = len(self.tokens), len(self.tokens) // 2
        for first, stop in ((0, cut), (cut, count - 1), (count - 1, count)):
            # The second row is one token behind the first.
            parts = [(max(0, first - n), stop - n) for n in range(rows)]
            batch = [
                probe_row(self.tokens[start:end], start, self.layout, self.pages, n)
                for n, (start, end) in enumerate(parts)
            ]
            if batch:
                logits = step(batch)
                for row, (_, end) in zip(logits, parts, strict=True):
                    self._compare(row, self.reference[end - 1], dtype)

    def _compare(self, logits: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
        allowed = WORST_DIFFERENCE.get(dtype, WORST_MEAN_DIFFERENCE)
        apart = (logits - expected).abs()
        measure = apart.max() if dtype in WORST_DIFFERENCE else apart.square().mean().sqrt()
        difference = float(measure / expected.std())
        if not difference <= allowed:
            reason = f"packed steps give other logits than the library (by {difference:.2g} of their spread)"
            raise UnsupportedModelError(self.layout.model_type, reason)
