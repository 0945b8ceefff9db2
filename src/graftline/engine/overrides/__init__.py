"""Corrections of single model families, each in a file that says what is wrong upstream.

All of them change instances of one model, never the library.
"""

from __future__ import annotations

from typing import Any

from graftline.engine.kv_layers import PagedCache
from graftline.engine.overrides.dt_clamp import clamp_single_steps
from graftline.engine.overrides.mamba1 import continue_scans
from graftline.engine.overrides.minimax import minimax_cache_class
from graftline.engine.overrides.qwen4_exp import full_positions
from graftline.engine.overrides.recurrent_gemma import keep_state_in_cache
from graftline.engine.overrides.relative_bias import bias_by_profile
from graftline.engine.state import EngineState


def apply(model: Any, state: EngineState) -> None:
    """Apply the corrections that this model's family needs."""
    family = model.config.get_text_config(decoder=True).model_type
    if family in ("jamba", "mamba", "falcon_mamba", "zamba"):
        continue_scans(model)
    elif family in ("nemotron_h", "zamba2"):
        clamp_single_steps(model)
    elif family == "recurrent_gemma":
        keep_state_in_cache(model)
    elif family.startswith("inkling"):
        bias_by_profile(model)
    elif family.startswith("qwen4_exp"):
        full_positions(model, state)


def cache_class(model: Any) -> type[PagedCache]:
    """Class of cache that the model's family accepts."""
    if model.config.get_text_config(decoder=True).model_type == "minimax":
        return minimax_cache_class()
    return PagedCache
