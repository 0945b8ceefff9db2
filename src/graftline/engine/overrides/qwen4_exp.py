"""Qwen4-Exp: its attention wants the rotary embeddings of the whole sequence, not of the new tokens only.

The indexer rotates pooled keys at the positions where they began. Upstream, the positions of earlier tokens
are kept in the cache and prepended in the model's forward, for the one sequence of the batch. In a packed
step the embeddings of positions 0 .. end of the row at hand are made here instead, once per row and step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from graftline.engine.state import EngineState


def full_positions(model: Any, state: EngineState) -> None:
    """Give every attention module with an indexer the embeddings of its row from position 0 on."""
    rotary = next(m for m in model.modules() if type(m).__name__.endswith("TextRotaryEmbedding"))
    for module in model.modules():
        if hasattr(module, "indexer"):
            module.forward = _with_full_positions(module.forward, rotary, state)


def _with_full_positions(
    forward: Callable[..., Any], rotary: Callable[..., Any], state: EngineState
) -> Callable[..., Any]:
    def attention_forward(hidden_states: torch.Tensor, *_: Any, **kwargs: Any) -> Any:
        step = state.step
        if "rotary" not in step.notes:
            positions = torch.arange(step.rows[0].end, device=hidden_states.device)
            step.notes["rotary"] = rotary(hidden_states, positions.expand(3, 1, -1))
        kwargs["position_embeddings"] = step.notes["rotary"]
        return forward(hidden_states, **kwargs)

    return attention_forward
