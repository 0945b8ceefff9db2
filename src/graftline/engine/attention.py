"""The attention function that the library's attention modules call while a runner drives the model.

It is registered once under `NAME` and holds no state: the step is found through the module. Queries come
packed, (1, heads, total_tokens, dim); keys and values as the layer's update returned them, the sections of
all spans behind each other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from transformers.modeling_utils import AttentionInterface

from graftline.engine.reads import KvSpan
from graftline.engine.state import ATTRIBUTE, EngineState

NAME = "graftline_paged"


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of a packed step; returns (1, total_tokens, heads, value_dim), contiguous, and no weights.

    A mask given by the module is complete: only modules that run one row at a time are handed one.
    """
    state: EngineState = getattr(module, ATTRIBUTE)
    plan = state.attending_layer(getattr(module, "layer_idx", None))
    if state.recording:
        state.note_attention(plan, options)
    spans = state.step.components[str(plan.attention)].spans
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    softcap = options.get("softcap", getattr(module, "attn_logit_softcapping", None))
    sinks = options.get("s_aux", options.get("sinks", getattr(module, "sinks", None)))
    parts = []
    for span in spans:
        q = _queries(query, span)
        k, v = (
            _of_span(x[0], span, len(spans)).unflatten(1, (span.rows, -1)).transpose(0, 1)
            for x in (key, value)
        )
        mask = _mask(span, q, k, attention_mask, options)
        if softcap or sinks is not None:
            own_sinks = _queries(sinks, span) if sinks is not None and sinks.dim() == 4 else sinks
            out = _attend_by_hand(q, k, v, mask, scaling, softcap, own_sinks)
        else:
            out = _attend(q, k, v, mask, scaling)
        parts.append(out.transpose(1, 2).reshape(1, span.tokens, *out.shape[1:2], out.shape[-1]))
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).contiguous(), None


AttentionInterface.register(NAME, paged_attention)


def _queries(packed: torch.Tensor, span: KvSpan) -> torch.Tensor:
    """The span's part of one entry per head and token: (1, heads, total_tokens, x) to (rows, heads, n, x)."""
    part = packed[0, :, span.first_token : span.first_token + span.tokens]
    return part.unflatten(1, (span.rows, span.row_tokens)).transpose(0, 1)


def _of_span(kv: torch.Tensor, span: KvSpan, spans: int) -> torch.Tensor:
    """The span's section of keys or values, (heads, kv, dim); an only span has all, and what was appended."""
    return kv if spans == 1 else kv[:, span.first_kv : span.first_kv + span.rows * span.row_kv]


def _mask(
    span: KvSpan, query: torch.Tensor, key: torch.Tensor, given: torch.Tensor | None, options: dict[str, Any]
) -> torch.Tensor | bool:
    """Additive mask of one span; True stands for the lower triangle, False for none at all."""
    profiles, indices = options.get("position_bias"), options.get("indices")
    mask: torch.Tensor | bool
    if given is not None:
        mask = given
    elif span.sees_all:
        mask = False
    elif span.is_causal and profiles is None:
        return True
    else:
        mask = span.mask(query.dtype)
    if profiles is not None:  # see overrides/relative_bias.py
        bias = _bias(_queries(profiles, span), span.distances())
        mask = bias if mask is False else bias + mask
    if indices is not None:  # tokens that an indexer has chosen, (1, queries, chosen)
        chosen = torch.full(
            (1, query.shape[2], key.shape[2]), float("-inf"), dtype=query.dtype, device=query.device
        )
        mask = mask + chosen.scatter_(-1, indices.long(), 0.0)[:, None]
    return mask.to(query.dtype) if isinstance(mask, torch.Tensor) else mask


def _bias(profiles: torch.Tensor, distances: torch.Tensor) -> torch.Tensor:
    """Bias of each query and key: the query's profile at their distance, 0 beyond its reach."""
    reach = profiles.shape[-1]
    index = distances.clamp(0, reach - 1).expand(-1, profiles.shape[1], -1, -1)
    return profiles.gather(-1, index).masked_fill(distances >= reach, 0.0)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | bool, scaling: float
) -> torch.Tensor:
    """One attention call: query (rows, heads, n, dim), key and value (rows, kv heads, kv, dim)."""
    rows, heads, n, _ = query.shape
    kv_heads = key.shape[1]
    if n == 1 and heads != kv_heads and mask is not True:
        # The heads that share a KV head stand in for queries: no copy of KV per head.
        grouped = query.reshape(rows, kv_heads, heads // kv_heads, query.shape[-1])
        if isinstance(mask, torch.Tensor) and mask.shape[1] == heads:
            mask = mask.reshape(mask.shape[0], kv_heads, heads // kv_heads, -1)
        bias = mask if isinstance(mask, torch.Tensor) else None
        out = F.scaled_dot_product_attention(grouped, key, value, attn_mask=bias, scale=scaling)
        return out.reshape(rows, heads, 1, -1)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask if isinstance(mask, torch.Tensor) else None,
        is_causal=mask is True,
        scale=scaling,
        enable_gqa=heads != kv_heads,
    )


def _attend_by_hand(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | bool,
    scaling: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention with soft-capped scores or with sinks, which the fused functions lack.

    Sinks are extra scores that take part in the softmax and bring no value: one per head, or
    (rows, heads, n, 1).
    """
    rows, heads, n, _ = query.shape
    kv_heads = key.shape[1]
    grouped = query.reshape(rows, kv_heads, heads // kv_heads * n, query.shape[-1])
    scores = (grouped @ key.transpose(2, 3) * scaling).view(rows, heads, n, -1)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is True:
        scores = scores + torch.full((n, n), float("-inf"), dtype=scores.dtype, device=scores.device).triu_(1)
    elif isinstance(mask, torch.Tensor):
        scores = scores + mask
    if sinks is not None:
        extra = sinks if sinks.dim() == 4 else sinks.view(1, -1, 1, 1)
        extra = extra.to(scores.dtype).expand(rows, -1, n, 1)
        weights = torch.softmax(torch.cat([scores, extra], dim=-1).float(), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores.float(), dim=-1)
    weights = weights.to(value.dtype).reshape(rows, kv_heads, heads // kv_heads * n, -1)
    return (weights @ value).view(rows, heads, n, -1)
