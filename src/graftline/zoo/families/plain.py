"""Families of full attention alone, as controls."""

from __future__ import annotations

from graftline.zoo.families.base import FamilyInfo, decoder, mixture

FULL = "full"

FAMILIES = (
    FamilyInfo("llama", "llama", FULL, lambda s: decoder(s, head_dim=s.head_dim)),
    FamilyInfo("qwen3", "qwen3", FULL, lambda s: decoder(s, head_dim=s.head_dim)),
    FamilyInfo(
        "qwen3_moe",
        "qwen3_moe",
        FULL,
        lambda s: {**decoder(s, head_dim=s.head_dim), **mixture(s)},
        "mixture of experts",
    ),
)
