"""Reuse rules: where a cached value may be used again. One rule a file, all of them pure."""

from graftline.components.base import ComponentSpec, ReuseRule
from graftline.components.checkpoint import Checkpoint
from graftline.components.chunk import Chunk
from graftline.components.full import Full
from graftline.components.window import Window

__all__ = ["Checkpoint", "Chunk", "ComponentSpec", "Full", "ReuseRule", "Window"]
