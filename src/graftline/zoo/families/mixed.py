"""Families with short convolutions or with more than two kinds of cached state."""

from __future__ import annotations

from graftline.zoo.families.base import (
    FamilyInfo,
    Settings,
    base,
    decoder,
    kinds,
    mixture,
    one_dense,
    without,
)
from graftline.zoo.sizes import Sizes


def _lfm2(s: Sizes) -> Settings:
    return decoder(s, layer_types=kinds("CCFC", s.layers), conv_L_cache=3, block_auto_adjust_ff_dim=False)


def _lfm2_moe(s: Sizes) -> Settings:
    return {
        **without(_lfm2(s), "block_auto_adjust_ff_dim"),
        **mixture(s),
        "num_dense_layers": 1,
    }


def _lfm3(s: Sizes) -> Settings:
    return decoder(
        s,
        head_dim=s.head_dim,
        layer_types=kinds("CSFC", s.layers),
        conv_L_cache=7,
        sliding_window=s.window_tokens,
    )


def _zaya(s: Sizes) -> Settings:
    settings = decoder(
        s,
        layer_types=kinds("H", s.layers),
        head_dim=s.head_dim,
        num_experts=s.experts,
        moe_intermediate_size=s.expert_size,
        router_hidden_size=16,
    )
    return without(settings, "intermediate_size")


def _inkling_attention(s: Sizes) -> Settings:
    return {
        "head_dim": s.head_dim,
        "swa_num_attention_heads": s.heads,
        "swa_num_key_value_heads": s.kv_heads,
        "swa_head_dim": s.head_dim,
        "sliding_window_size": s.window_tokens,
        "d_rel": 4,
        "rel_extent": 8 * s.window_tokens,
        "layer_types": kinds("hhHh", s.layers),
        "conv_kernel_size": 4,
    }


def _inkling(s: Sizes) -> Settings:
    return {
        **decoder(s, **_inkling_attention(s)),
        **mixture(s, "n_routed_experts"),
        "mlp_layer_types": one_dense(s),
        "n_shared_experts": 1,
        # The released divisor of 24 belongs to a far larger width.
        "logits_mup_width_multiplier": 1.0,
    }


def _inkling2(s: Sizes) -> Settings:
    settings = {
        **decoder(s, **_inkling_attention(s)),
        **mixture(s, "n_routed_experts"),
        "unpadded_vocab_size": s.vocab_size,
        "n_layers_per_attn_res_block": 2,
    }
    return without(settings, "intermediate_size")


def _recurrent_gemma(s: Sizes) -> Settings:
    return {
        **without(base(s), "max_position_embeddings"),
        "intermediate_size": s.intermediate_size * 2,
        "num_attention_heads": s.heads,
        "num_key_value_heads": 1,
        "lru_width": s.hidden_size,
        "attention_window_size": s.window_tokens,
        "conv1d_width": 4,
    }


FULL_CONV = "full + conv"
ALL_THREE = "full + swa + conv"

FAMILIES = (
    FamilyInfo("lfm2", "lfm2", FULL_CONV, _lfm2, "short convolutions of 3 tokens"),
    FamilyInfo("lfm2_moe", "lfm2_moe", FULL_CONV, _lfm2_moe, "lfm2 with a mixture of experts"),
    FamilyInfo(
        "zaya",
        "zaya",
        "full + conv + state",
        _zaya,
        "convolution over queries and keys and a delayed value in every layer",
    ),
    FamilyInfo("lfm3", "lfm3", ALL_THREE, _lfm3, "convolution, window and full layers in turn"),
    FamilyInfo(
        "inkling", "inkling_text", ALL_THREE, _inkling, "4 convolutions in every layer", ("inkling_text",)
    ),
    FamilyInfo(
        "inkling2", "inkling2_text", ALL_THREE, _inkling2, "4 convolutions in every layer", ("inkling2_text",)
    ),
    FamilyInfo(
        "recurrent_gemma", "recurrent_gemma", "swa + state", _recurrent_gemma, "RG-LRU, no full attention"
    ),
)
