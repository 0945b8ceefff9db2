"""Families that read a selection of the tokens, or compressed entries in their place.

Their indexers score with a sum of rectified products. With few index heads many scores are exactly 0, and
which of equal scores wins depends on how many there are: the model then differs from itself. Sixteen heads
make a tie improbable.
"""

from __future__ import annotations

from graftline.zoo.families.base import (
    FamilyInfo,
    Settings,
    base,
    decoder,
    delta_rule,
    kinds,
    latent,
    mixture,
    one_dense,
    without,
)
from graftline.zoo.sizes import Sizes

INDEX_HEADS = 16


def _indexer(s: Sizes) -> Settings:
    return {"index_topk": s.window_tokens, "index_head_dim": s.head_dim, "index_n_heads": INDEX_HEADS}


def _deepseek_v32(s: Sizes) -> Settings:
    return {
        **decoder(s, layer_types=kinds("I", s.layers), mlp_layer_types=one_dense(s)),
        **mixture(s, "n_routed_experts"),
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        **_indexer(s),
        **latent(s),
    }


def _axk2(s: Sizes) -> Settings:
    return {**without(_deepseek_v32(s), "first_k_dense_replace"), "head_dim": s.head_dim // 2}


def _hy_v4(s: Sizes) -> Settings:
    return {**without(_deepseek_v32(s), "first_k_dense_replace"), "hc_mult": 2}


def _dots3_note(s: Sizes) -> Settings:
    narrow = {
        **without(latent(s), "qk_rope_head_dim"),
        "num_attention_heads": s.heads,
        "head_dim": s.head_dim * 3 // 2,
    }
    return {
        **without(_deepseek_v32(s), "first_k_dense_replace"),
        "layer_types": kinds("ISSI", s.layers),
        "head_dim": s.head_dim * 3 // 2,
        "shared_experts_intermediate_size": s.expert_size,
        "sliding_window": s.window_tokens,
        **{f"swa_{name}": value for name, value in narrow.items()},
    }


def _deepseek_v4(s: Sizes) -> Settings:
    cycle = (
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    )
    return {
        **base(s),
        "num_attention_heads": s.heads,
        "num_key_value_heads": 1,
        "head_dim": 2 * s.head_dim,
        "partial_rotary_factor": 0.25,
        "q_lora_rank": s.hidden_size // 2,
        "o_groups": 2,
        "o_lora_rank": s.hidden_size // 4,
        "layer_types": [cycle[i % len(cycle)] for i in range(s.layers)],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "sliding_window": s.window_tokens,
        "mlp_layer_types": ["hash_moe"] + ["moe"] * (s.layers - 1),
        **mixture(s, "n_routed_experts"),
        **_indexer(s),
        "index_topk": max(4, s.window_tokens // 2),
        "hc_mult": 2,
    }


def _qwen4_exp(s: Sizes) -> Settings:
    settings = {
        **decoder(s, head_dim=s.head_dim, layer_types=kinds("LLLI", s.layers), **delta_rule(s)),
        **mixture(s),
        "shared_expert_intermediate_size": s.expert_size,
        "hc_count": 2,
        "hc_lowrank": 8,
        "indexer_n_heads": INDEX_HEADS,
        "indexer_kv_heads": 1,
        "indexer_head_dim": s.head_dim,
        "indexer_budget": max(2, s.window_tokens // 2 * 2),
        "indexer_compress_ratio": 2,
    }
    return without(settings, "intermediate_size")


INDEXED = "latent attention over a selection of the tokens"

FAMILIES = (
    FamilyInfo(
        "deepseek_v4", "deepseek_v4", "swa + compressed", _deepseek_v4, "compressed entries at rates 4 and 8"
    ),
    FamilyInfo("deepseek_v32", "deepseek_v32", "indexed", _deepseek_v32, INDEXED),
    FamilyInfo("axk2", "axk2", "indexed", _axk2, INDEXED),
    FamilyInfo("glm_moe_dsa", "glm_moe_dsa", "indexed", _axk2, INDEXED),
    FamilyInfo("hy_v4", "hy_v4", "indexed", _hy_v4, f"{INDEXED}, several residual streams"),
    FamilyInfo("dots3_note", "dots3_note_text", "indexed + swa", _dots3_note, INDEXED),
    FamilyInfo(
        "qwen4_exp",
        "qwen4_exp_text",
        "indexed + state",
        _qwen4_exp,
        "gated delta rule, several residual streams",
    ),
)
