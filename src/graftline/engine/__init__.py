"""Runs hybrid models of the transformers library over the prefix cache."""

from graftline.engine.config import EngineConfig
from graftline.engine.engine import HybridEngine
from graftline.engine.load import load_engine, start_engine

__all__ = ["EngineConfig", "HybridEngine", "load_engine", "start_engine"]
