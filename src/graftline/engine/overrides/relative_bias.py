"""Inkling and Inkling 2: biases by distance for rows that begin at different positions.

Their attention asks the cache for one query offset and one KV offset and builds from them a bias for every
query and key, which fits one sequence only. In a packed step the projection gives just the profile of each
query, one value per distance; the attention function picks from it for each span, where positions are known.
Queries are scaled by their positions too: the cache answers with an offset per token, see `PagedCache`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def bias_by_profile(model: Any) -> None:
    """Let every projection of relative logits return profiles, (1, heads, total_tokens, distances)."""
    for module in model.modules():
        if hasattr(module, "rel_logits_proj"):
            module.rel_logits_proj.forward = _profiles(module.rel_logits_proj)


def _profiles(projection: Any) -> Callable[..., torch.Tensor]:
    def forward(relative_states: torch.Tensor, *_positions: torch.Tensor) -> torch.Tensor:
        return (relative_states @ projection.proj).transpose(1, 2)

    return forward
