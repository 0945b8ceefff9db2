"""Small models of every hybrid family, made without a network: for tests, demonstrations and benchmarks."""

from graftline.zoo.build import build_config, build_model, describe, families
from graftline.zoo.families import FamilyInfo
from graftline.zoo.sizes import PRESETS, Sizes, preset

__all__ = ["PRESETS", "FamilyInfo", "Sizes", "build_config", "build_model", "describe", "families", "preset"]
