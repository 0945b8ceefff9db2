"""Small models of every hybrid family, made without a network: for tests, demonstrations and benchmarks."""

from graftline.zoo.build import build_config, build_model, describe, families
from graftline.zoo.families import FamilyInfo
from graftline.zoo.make import MadeModel, make_model
from graftline.zoo.sizes import PRESETS, Sizes, preset
from graftline.zoo.tokenizer import build_tokenizer

__all__ = [
    "PRESETS",
    "FamilyInfo",
    "MadeModel",
    "Sizes",
    "build_config",
    "build_model",
    "build_tokenizer",
    "describe",
    "families",
    "make_model",
    "preset",
]
