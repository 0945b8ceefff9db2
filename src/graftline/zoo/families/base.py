"""What every family of the zoo is made from: a record per family, and settings that many families share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graftline.zoo.sizes import Sizes

Settings = dict[str, Any]

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2

LAYER_KINDS = {
    "F": "full_attention",
    "S": "sliding_attention",
    "K": "chunked_attention",
    "L": "linear_attention",
    "C": "conv",
    "H": "hybrid",
    "h": "hybrid_sliding",
    "I": "indexed_attention",
}
"""One letter per kind of layer, as patterns write them; the values are the library's own words."""


@dataclass(frozen=True, slots=True)
class FamilyInfo:
    """One model family and how its configuration follows from sizes.

    Args:
        name: the zoo's name, usually the library's `model_type` with underscores.
        model_type: key of the library's configuration class.
        composition: kinds of cached state, joined by " + " (for example "full + swa").
        settings: gives the keyword arguments of the configuration class.
        notes: what is special; empty when nothing is.
        aliases: other names under which the family is found.
    """

    name: str
    model_type: str
    composition: str
    settings: Callable[[Sizes], Settings]
    notes: str = ""
    aliases: tuple[str, ...] = ()


def kinds(pattern: str, layers: int) -> list[str]:
    """Layer kinds of `layers` layers: the pattern of letters, repeated and cut."""
    return [LAYER_KINDS[pattern[i % len(pattern)]] for i in range(layers)]


def base(s: Sizes) -> Settings:
    """Vocabulary, width, positions and special tokens.

    Input and output embeddings are not tied: with random weights a tied head mostly repeats the token it
    has just read, and text that repeats one token shows no fault.
    """
    return {
        "vocab_size": s.vocab_size,
        "hidden_size": s.hidden_size,
        "num_hidden_layers": s.layers,
        "max_position_embeddings": s.max_positions,
        "tie_word_embeddings": False,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
    }


def decoder(s: Sizes, **more: Any) -> Settings:
    """A plain decoder: `base` with a feed-forward width and grouped-query heads."""
    return {
        **base(s),
        "intermediate_size": s.intermediate_size,
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        **more,
    }


def mixture(s: Sizes, count_name: str = "num_experts", **more: Any) -> Settings:
    """A mixture of experts, two of which run for each token."""
    return {count_name: s.experts, "num_experts_per_tok": 2, "moe_intermediate_size": s.expert_size, **more}


def one_dense(s: Sizes) -> list[str]:
    """Feed-forward kinds of a model whose first layer is dense and whose others are mixtures."""
    return ["dense"] + ["sparse"] * (s.layers - 1)


def latent(s: Sizes) -> Settings:
    """Multi-head latent attention; its cache holds one narrow latent per token."""
    return {
        "kv_lora_rank": s.hidden_size // 4,
        "q_lora_rank": s.hidden_size // 2,
        "qk_rope_head_dim": s.head_dim // 2,
        "qk_nope_head_dim": s.head_dim,
        "v_head_dim": s.head_dim,
        "num_key_value_heads": s.heads,
    }


def delta_rule(s: Sizes) -> Settings:
    """Gated delta rule: a state of [heads, state_size / 2, head_dim] and a convolution over 4 tokens."""
    return {
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": s.state_size // 2,
        "linear_value_head_dim": s.head_dim,
        "linear_num_key_heads": s.kv_heads,
        "linear_num_value_heads": s.heads,
    }


def kimi_delta(s: Sizes) -> Settings:
    """Kimi delta attention: a square state of head_dim per head, decaying by channel."""
    return {"linear_head_dim": s.head_dim, "linear_num_heads": s.heads, "linear_conv_kernel_dim": 4}


def mamba2(s: Sizes) -> Settings:
    """Mamba-2 with the inner width at twice the hidden size."""
    return {
        "mamba_n_heads": 2 * s.hidden_size // s.head_dim,
        "mamba_d_head": s.head_dim,
        "mamba_n_groups": 1,
        "mamba_d_state": s.state_size,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": s.scan_tokens,
    }


def without(settings: Settings, *names: str) -> Settings:
    """The settings less some names, for configuration classes that do not know them."""
    return {name: value for name, value in settings.items() if name not in names}
