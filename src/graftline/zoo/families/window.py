"""Families that mix full attention with a sliding window or with chunks, and one of windows alone."""

from __future__ import annotations

from graftline.zoo.families.base import FamilyInfo, Settings, decoder, kinds, mixture, one_dense, without
from graftline.zoo.sizes import Sizes


def _sliding(s: Sizes, pattern: str, **more: object) -> Settings:
    return decoder(s, sliding_window=s.window_tokens, layer_types=kinds(pattern, s.layers), **more)


def _headed(s: Sizes, pattern: str, **more: object) -> Settings:
    return _sliding(s, pattern, head_dim=s.head_dim, **more)


def _gemma(s: Sizes, pattern: str) -> Settings:
    return _headed(s, pattern, query_pre_attn_scalar=s.head_dim)


def _whole_threes(s: Sizes) -> Sizes:
    # Layers that reuse another layer's keys and values need one of each kind before them.
    return s.replace({"layers": max(s.layers, 6)})


def _gemma3n(s: Sizes) -> Settings:
    s = _whole_threes(s)
    return {
        **_headed(s, "SF"),
        "num_kv_shared_layers": 2,
        "hidden_size_per_layer_input": s.head_dim,
        "vocab_size_per_layer_input": s.vocab_size,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.0] * s.layers,
    }


def _gemma4(s: Sizes) -> Settings:
    s = _whole_threes(s)
    types = kinds("SSF", s.layers)
    types[-1] = "full_attention"
    return {
        **_headed(s, "SSF"),
        "layer_types": types,
        "global_head_dim": 2 * s.head_dim,
        "hidden_size_per_layer_input": s.head_dim,
        "vocab_size_per_layer_input": s.vocab_size,
    }


def _gemma4_kvshare(s: Sizes) -> Settings:
    s = _whole_threes(s)
    types = kinds("SF", s.layers)
    types[-1] = "full_attention"
    return {**_gemma4(s), "layer_types": types, "num_kv_shared_layers": 2}


def _gemma4_unified(s: Sizes) -> Settings:
    types = kinds("SSSF", s.layers)
    types[-1] = "full_attention"
    return {
        **_headed(s, "SSSF"),
        "layer_types": types,
        "global_head_dim": 2 * s.head_dim,
        "use_bidirectional_attention": None,
    }


def _gpt_oss(s: Sizes) -> Settings:
    return {
        **_headed(s, "SF"),
        "num_local_experts": s.experts,
        "num_experts_per_tok": 2,
        "intermediate_size": s.expert_size,
        # The released model stretches its positions for a length that these sizes do not have.
        "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0},
    }


def _cohere2(s: Sizes) -> Settings:
    # The released scale of 1/16 belongs to a far larger vocabulary and width.
    return _headed(s, "SSSF", logit_scale=1.0)


def _cohere2_moe(s: Sizes) -> Settings:
    return {
        **_cohere2(s),
        "num_experts": s.experts,
        "num_experts_per_tok": 2,
        "intermediate_size": s.expert_size,
    }


def _exaone_moe(s: Sizes) -> Settings:
    return {
        **_headed(s, "SSSF"),
        **mixture(s),
        "n_group": 1,
        "topk_group": 1,
        "mlp_layer_types": one_dense(s),
    }


def _afmoe(s: Sizes) -> Settings:
    return {**_headed(s, "SSSF"), **mixture(s), "num_shared_experts": 1, "num_dense_layers": 1}


def _beam(s: Sizes) -> Settings:
    return {
        **_headed(s, "SSSF"),
        **mixture(s),
        "n_group": 1,
        "topk_group": 1,
        "mlp_layer_types": one_dense(s),
    }


def _shared_expert(s: Sizes) -> Settings:
    return {**_headed(s, "FSS"), **mixture(s), "shared_expert_intermediate_size": s.expert_size}


def _kolibri1(s: Sizes) -> Settings:
    settings = {
        **_headed(s, "SSSF"),
        **mixture(s, "num_local_experts"),
        "shared_expert_intermediate_size": s.expert_size,
    }
    return without(settings, "intermediate_size")


def _granite(s: Sizes) -> Settings:
    return {
        **_headed(s, "FSSS"),
        "layer_rope_theta": [10000.0] * s.layers,
        "attention_multiplier": s.head_dim**-0.5,
    }


def _granitemoe(s: Sizes) -> Settings:
    return {
        **_granite(s),
        "num_local_experts": s.experts,
        "num_experts_per_tok": 2,
        "intermediate_size": s.expert_size,
    }


def _mimo(s: Sizes) -> Settings:
    return {
        **_headed(s, "FSS"),
        **mixture(s, "n_routed_experts"),
        # Window layers have twice as many key-value heads.
        "num_key_value_heads": max(1, min(s.kv_heads, s.heads // 2)),
        "head_dim": s.head_dim * 3 // 2,
        "v_head_dim": s.head_dim,
        "mlp_layer_types": one_dense(s),
    }


def _laguna(s: Sizes) -> Settings:
    return {
        **_shared_expert(s),
        "num_attention_heads_per_layer": [s.heads] * s.layers,
        "mlp_layer_types": one_dense(s),
    }


def _mellum(s: Sizes) -> Settings:
    return {**_headed(s, "FSS"), **mixture(s, "num_local_experts"), "mlp_layer_types": ["sparse"] * s.layers}


def _smollm3(s: Sizes) -> Settings:
    rotary = [1 if kind == "sliding_attention" else 0 for kind in kinds("SSFS", s.layers)]
    return _sliding(s, "SSFS", use_sliding_window=True, no_rope_layers=rotary)


def _qwen(s: Sizes) -> Settings:
    return _headed(s, "FFSS", use_sliding_window=True, max_window_layers=2)


def _modernbert(s: Sizes) -> Settings:
    # The configuration counts the window on both sides.
    settings = _sliding(s, "FSS", local_attention=2 * s.window_tokens, cls_token_id=1, sep_token_id=2)
    return without(settings, "num_key_value_heads", "sliding_window")


def _llama4(s: Sizes) -> Settings:
    types = kinds("KKKF", s.layers)
    return decoder(
        s,
        head_dim=s.head_dim,
        attention_chunk_size=s.chunk_tokens,
        layer_types=types,
        no_rope_layers=[1 if kind == "chunked_attention" else 0 for kind in types],
        num_local_experts=s.experts,
        intermediate_size=s.expert_size,
        intermediate_size_mlp=s.intermediate_size,
        num_experts_per_tok=1,
        floor_scale=8192,
    )


def _mistral(s: Sizes) -> Settings:
    return decoder(s, head_dim=s.head_dim, sliding_window=s.window_tokens)


FULL_SWA = "full + swa"

FAMILIES = (
    FamilyInfo("gemma2", "gemma2", FULL_SWA, lambda s: _gemma(s, "SF"), "soft-capped scores"),
    FamilyInfo("gemma3", "gemma3_text", FULL_SWA, lambda s: _gemma(s, "SSSF"), aliases=("gemma3_text",)),
    FamilyInfo(
        "gemma3n",
        "gemma3n_text",
        FULL_SWA,
        _gemma3n,
        "the last 2 layers reuse another layer's keys and values",
    ),
    FamilyInfo("gemma4", "gemma4_text", FULL_SWA, _gemma4, "full layers have wider heads", ("gemma4_text",)),
    FamilyInfo("gemma4_kvshare", "gemma4_text", FULL_SWA, _gemma4_kvshare, "gemma4, the last 2 layers share"),
    FamilyInfo(
        "gemma4_unified", "gemma4_unified_text", FULL_SWA, _gemma4_unified, "full layers have wider heads"
    ),
    FamilyInfo("gpt_oss", "gpt_oss", FULL_SWA, _gpt_oss, "attention sinks, mixture of experts"),
    FamilyInfo("cohere2", "cohere2", FULL_SWA, _cohere2, "no positions in full layers"),
    FamilyInfo("cohere2_moe", "cohere2_moe", FULL_SWA, _cohere2_moe, "mixture of experts"),
    FamilyInfo("olmo3", "olmo3", FULL_SWA, lambda s: _sliding(s, "SSSF")),
    FamilyInfo("exaone4", "exaone4", FULL_SWA, lambda s: _headed(s, "SSSF")),
    FamilyInfo("exaone_moe", "exaone_moe", FULL_SWA, _exaone_moe, "mixture of experts"),
    FamilyInfo("afmoe", "afmoe", FULL_SWA, _afmoe, "mixture of experts, gated attention"),
    FamilyInfo("beam", "beam", FULL_SWA, _beam, "mixture of experts, gated attention"),
    FamilyInfo("flint", "flint", FULL_SWA, _shared_expert, "attention sinks, mixture of experts"),
    FamilyInfo("kolibri1", "kolibri1", FULL_SWA, _kolibri1, "mixture of experts"),
    FamilyInfo("granite_swa", "granite_swa", FULL_SWA, _granite, "attention sinks"),
    FamilyInfo(
        "granitemoe_swa", "granitemoe_swa", FULL_SWA, _granitemoe, "attention sinks, mixture of experts"
    ),
    FamilyInfo("mimo_v2_flash", "mimo_v2_flash", FULL_SWA, _mimo, "keys wider than values, attention sinks"),
    FamilyInfo("laguna", "laguna", FULL_SWA, _laguna, "mixture of experts"),
    FamilyInfo("mellum", "mellum", FULL_SWA, _mellum, "mixture of experts"),
    FamilyInfo("smollm3", "smollm3", FULL_SWA, _smollm3, aliases=("smollm3_swa",)),
    FamilyInfo(
        "qwen2_swa", "qwen2", FULL_SWA, lambda s: without(_qwen(s), "head_dim"), "qwen2 with windows on"
    ),
    FamilyInfo("qwen3_swa", "qwen3", FULL_SWA, _qwen, "qwen3 with windows on"),
    FamilyInfo("ministral", "ministral", FULL_SWA, lambda s: _headed(s, "SSSF")),
    FamilyInfo(
        "modernbert_decoder", "modernbert-decoder", FULL_SWA, _modernbert, aliases=("modernbert_dec",)
    ),
    FamilyInfo("vaultgemma", "vaultgemma", FULL_SWA, lambda s: _gemma(s, "SF")),
    FamilyInfo("cwm", "cwm", FULL_SWA, lambda s: _headed(s, "FSS")),
    FamilyInfo(
        "llama4",
        "llama4_text",
        "full + chunked",
        _llama4,
        "mixture of experts",
        ("llama4_chunk", "llama4_text"),
    ),
    FamilyInfo("mistral", "mistral", "swa", _mistral, "windows alone", ("mistral_swa",)),
)
