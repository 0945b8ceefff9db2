"""Families that mix full attention with recurrent layers, and those that are recurrent throughout."""

from __future__ import annotations

from graftline.errors import ConfigError
from graftline.zoo.families.base import (
    FamilyInfo,
    Settings,
    base,
    decoder,
    delta_rule,
    kimi_delta,
    kinds,
    latent,
    mamba2,
    mixture,
    one_dense,
    without,
)
from graftline.zoo.sizes import Sizes


def _qwen3_5(s: Sizes) -> Settings:
    return decoder(s, head_dim=s.head_dim, layer_types=kinds("LLLF", s.layers), **delta_rule(s))


def _qwen3_next(s: Sizes) -> Settings:
    return {**_qwen3_5(s), **mixture(s), "shared_expert_intermediate_size": s.expert_size}


def _olmo_hybrid(s: Sizes) -> Settings:
    return {**without(_qwen3_5(s), "head_dim"), "linear_num_key_heads": s.heads}


def _kimi_linear(s: Sizes) -> Settings:
    return {
        **decoder(s, layer_types=kinds("LLLF", s.layers), mlp_layer_types=one_dense(s)),
        **without(mixture(s), "num_experts_per_tok"),
        "num_experts_per_token": 2,
        **kimi_delta(s),
        **latent(s),
        "q_lora_rank": None,
    }


def _bailing_hybrid(s: Sizes) -> Settings:
    return {
        **_kimi_linear(s),
        "num_expert_group": 1,
        "topk_group": 1,
        "q_lora_rank": s.hidden_size // 2,
    }


def _minimax(s: Sizes, pattern: str) -> Settings:
    return decoder(
        s,
        head_dim=s.head_dim,
        layer_types=kinds(pattern, s.layers),
        num_local_experts=s.experts,
        num_experts_per_tok=2,
        intermediate_size=s.expert_size,
        block_size=s.scan_tokens,
    )


def _bamba(s: Sizes) -> Settings:
    return decoder(s, attn_layer_indices=list(range(2, s.layers, 4)) or [s.layers - 1], **mamba2(s))


def _granite_hybrid(s: Sizes) -> Settings:
    return decoder(
        s,
        layer_types=kinds("LLFL", s.layers),
        shared_intermediate_size=s.intermediate_size,
        attention_multiplier=(s.hidden_size // s.heads) ** -0.5,
        **mamba2(s),
    )


def _granite_hybrid_moe(s: Sizes) -> Settings:
    return {
        **_granite_hybrid(s),
        "num_local_experts": s.experts,
        "num_experts_per_tok": 2,
        "intermediate_size": s.expert_size,
        "shared_intermediate_size": s.expert_size,
    }


def _granite_hybrid_dense(s: Sizes) -> Settings:
    return {
        **_granite_hybrid(s),
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "position_embedding_type": "rope",
    }


def _jamba(s: Sizes) -> Settings:
    return decoder(
        s,
        num_experts=s.experts,
        num_experts_per_tok=2,
        intermediate_size=s.expert_size,
        attn_layer_period=4,
        attn_layer_offset=min(2, s.layers - 1),
        expert_layer_period=2,
        expert_layer_offset=1,
        mamba_d_state=s.state_size // 2,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank=8,
    )


def _nemotron_h(s: Sizes) -> Settings:
    cycle = ("linear_attention", "mlp", "full_attention", "moe", "linear_attention")
    layers = max(s.layers, len(cycle))
    heads = 2 * s.hidden_size // s.head_dim
    return {
        **without(base(s), "num_hidden_layers"),
        "layers_block_type": [cycle[i % len(cycle)] for i in range(layers)],
        "intermediate_size": s.intermediate_size,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "ssm_state_size": s.state_size,
        "mamba_num_heads": heads,
        "mamba_head_dim": s.head_dim,
        "n_groups": 2 if heads % 2 == 0 else 1,
        "conv_kernel": 4,
        "chunk_size": s.scan_tokens,
        **mixture(s, "n_routed_experts"),
        "moe_shared_expert_intermediate_size": s.expert_size,
    }


def _falcon_h1(s: Sizes) -> Settings:
    return decoder(s, head_dim=s.head_dim, mamba_d_ssm=2 * s.hidden_size, **mamba2(s))


def _zamba(s: Sizes) -> Settings:
    # Its attention reads the embedding beside the hidden state, hence twice the width.
    layers = max(s.layers, 6)
    return {
        **decoder(s, num_hidden_layers=layers, num_key_value_heads=s.heads),
        "attention_hidden_size": 2 * s.hidden_size,
        "attention_head_dim": 2 * s.hidden_size // s.heads,
        "n_mamba_heads": 2,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "mamba_d_state": s.state_size // 2,
        "mamba_d_conv": 4,
        "mamba_dt_rank": 8,
    }


def _zamba2(s: Sizes) -> Settings:
    types = kinds("LLHLHL", max(s.layers, 6))
    return {
        **decoder(s, num_hidden_layers=len(types), num_key_value_heads=s.heads),
        "layers_block_type": types,
        "hybrid_layer_ids": [i for i, kind in enumerate(types) if kind == "hybrid"],
        "mamba_d_state": s.state_size,
        "mamba_ngroups": 1,
        "n_mamba_heads": 2 * s.hidden_size // s.head_dim,
        "chunk_size": s.scan_tokens,
        "num_mem_blocks": 2,
        "adapter_rank": 8,
        "use_mem_rope": True,
    }


def _mamba1(s: Sizes) -> Settings:
    settings = {**base(s), "state_size": s.state_size // 2, "time_step_rank": 8}
    return without(settings, "max_position_embeddings")


def _mamba2(s: Sizes) -> Settings:
    heads = 2 * s.hidden_size // s.head_dim
    return {
        **without(base(s), "max_position_embeddings"),
        "state_size": s.state_size,
        "num_heads": heads,
        "head_dim": s.head_dim,
        "n_groups": 2 if heads % 2 == 0 else 1,
        "chunk_size": s.scan_tokens,
    }


def _rwkv(s: Sizes) -> Settings:
    return {
        **without(base(s), "max_position_embeddings", "pad_token_id"),
        "attention_hidden_size": s.hidden_size,
        "intermediate_size": s.intermediate_size,
        "context_length": s.max_positions,
    }


def _xlstm(s: Sizes) -> Settings:
    if s.hidden_size % 64:
        # The library rounds the width of queries up to such a multiple, and then it no longer fits the heads.
        raise ConfigError(
            f"size 'hidden_size' is {s.hidden_size}, not a multiple of 64",
            hint="xlstm needs that; other families do not",
        )
    return {
        **without(base(s), "max_position_embeddings"),
        "embedding_dim": s.hidden_size,
        "num_blocks": s.layers,
        "num_heads": s.heads,
        "chunk_size": s.scan_tokens,
        "qk_dim_factor": 1.0,
    }


FULL_STATE = "full + state"
DELTA = "gated delta rule"
KDA = "Kimi delta attention with latent attention"
MAMBA1, MAMBA2 = "Mamba-1", "Mamba-2"

FAMILIES = (
    FamilyInfo("qwen3_next", "qwen3_next", FULL_STATE, _qwen3_next, f"{DELTA}, mixture of experts"),
    FamilyInfo("qwen3_5", "qwen3_5_text", FULL_STATE, _qwen3_5, DELTA, ("qwen3_5_text",)),
    FamilyInfo(
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        FULL_STATE,
        lambda s: without(_qwen3_next(s), "intermediate_size"),
        f"{DELTA}, mixture of experts",
        ("qwen3_5_moe_text",),
    ),
    FamilyInfo("olmo_hybrid", "olmo_hybrid", FULL_STATE, _olmo_hybrid, DELTA),
    FamilyInfo("kimi_linear", "kimi_linear", FULL_STATE, _kimi_linear, KDA, ("kimi_k3",)),
    FamilyInfo("bailing_hybrid", "bailing_hybrid", FULL_STATE, _bailing_hybrid, KDA, ("ling_hybrid",)),
    FamilyInfo("minimax", "minimax", FULL_STATE, lambda s: _minimax(s, "FL"), "lightning attention"),
    FamilyInfo(
        "minimax_lin_first",
        "minimax",
        FULL_STATE,
        lambda s: _minimax(s, "LLFL"),
        "minimax in the order of the released checkpoint: a recurrent layer first",
    ),
    FamilyInfo("bamba", "bamba", FULL_STATE, _bamba, MAMBA2),
    FamilyInfo(
        "granitemoehybrid",
        "granitemoehybrid",
        FULL_STATE,
        _granite_hybrid_moe,
        f"{MAMBA2}, mixture of experts",
        ("granite4_hybrid",),
    ),
    FamilyInfo(
        "granitemoehybrid_dense",
        "granitemoehybrid",
        FULL_STATE,
        _granite_hybrid_dense,
        f"{MAMBA2}, dense",
        ("granite4_hybrid_dense",),
    ),
    FamilyInfo("jamba", "jamba", FULL_STATE, _jamba, f"{MAMBA1}, mixture of experts"),
    FamilyInfo("nemotron_h", "nemotron_h", FULL_STATE, _nemotron_h, f"{MAMBA2}, one kind of block a layer"),
    FamilyInfo("falcon_h1", "falcon_h1", FULL_STATE, _falcon_h1, f"{MAMBA2} beside attention in every layer"),
    FamilyInfo("zamba", "zamba", FULL_STATE, _zamba, f"{MAMBA1}, one attention block shared by its layers"),
    FamilyInfo("zamba2", "zamba2", FULL_STATE, _zamba2, f"{MAMBA2}, shared attention blocks with adapters"),
    FamilyInfo("mamba", "mamba", "state", _mamba1, MAMBA1),
    FamilyInfo("mamba2", "mamba2", "state", _mamba2, MAMBA2),
    FamilyInfo("falcon_mamba", "falcon_mamba", "state", _mamba1, MAMBA1),
    FamilyInfo("rwkv", "rwkv", "state", _rwkv, "RWKV-4, a cache of its own"),
    FamilyInfo("xlstm", "xlstm", "state", _xlstm, "mLSTM blocks, a cache of its own"),
)
