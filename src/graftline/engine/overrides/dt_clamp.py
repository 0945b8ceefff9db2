"""Mamba-2 of nemotron_h and zamba2: the single-token step clamps dt as the chunk does.

Upstream, a chunk clamps dt to `time_step_limit` after the softplus and a single token does not: prefill and
decode compute different functions, so a prefix that was generated differs from the same prefix prefilled.
The chunk's way, which the models were trained with, is used for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from graftline.engine.inspection import names_used
from graftline.engine.overrides.rebind import library_global, rebind_forward

UPDATE = "mamba2_selective_state_update"


def clamp_single_steps(model: Any) -> None:
    """Let every Mamba-2 mixer of the model clamp dt in single steps too."""
    for module in model.modules():
        if UPDATE in names_used(module) and hasattr(module, "time_step_limit"):
            _clamp_single_step(module)


def _clamp_single_step(module: Any) -> None:
    library_update = library_global(module, UPDATE)

    def update(
        state: torch.Tensor,
        hidden_states: torch.Tensor,
        dt: torch.Tensor,
        *args: Any,
        dt_bias: torch.Tensor | None = None,
        dt_softplus: bool = False,
        **kwargs: Any,
    ) -> Any:
        if dt_bias is not None:
            dt = dt + dt_bias.to(dt.dtype)
        if dt_softplus:
            dt = F.softplus(dt)
        low, high = module.time_step_limit
        return library_update(state, hidden_states, dt.clamp(low, high), *args, **kwargs)

    rebind_forward(module, **{UPDATE: update})
