"""Prepares one model instance for packed steps; the library's own modules and classes stay untouched."""

from __future__ import annotations

import copy
from typing import Any

from graftline.engine import overrides
from graftline.engine.attention import NAME
from graftline.engine.compressed import compressed_layers
from graftline.engine.kv_layers import PagedCache
from graftline.engine.mixers import wrap_mixers
from graftline.engine.segments import wrap_segments
from graftline.engine.state import ATTRIBUTE, EngineState


def patch_model(model: Any, state: EngineState) -> PagedCache:
    """Make the instance run packed steps only; returns the cache to call it with.

    Its configurations are replaced by copies, so that another model made from the same ones is not changed.
    """
    overrides.apply(model, state)
    copies: dict[int, Any] = {}
    for module in model.modules():
        setattr(module, ATTRIBUTE, state)
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            module.config = _own_config(config, copies)
    wrap_mixers(model, state)
    wrap_segments(model, state)
    return overrides.cache_class(model)(state, compressed_layers(model.config))


def _own_config(config: Any, copies: dict[int, Any]) -> Any:
    if id(config) not in copies:
        own = copy.deepcopy(config)
        copies[id(config)] = copies[id(own)] = own
        for part in (own, own.get_text_config(decoder=True)):
            part._attn_implementation = NAME
    return copies[id(config)]
