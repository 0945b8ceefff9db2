"""Settings of the engine; each docstring below a field is also the help of its flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model is run, and how much it may hold.

    Attributes:
        page_tokens: tokens a page; rounded up to what the model needs.
        chunk_tokens: prompts are cut at multiples of this many tokens (rule X-2).
        max_batched_tokens: most tokens computed in one step; at least
            `chunk_tokens + max_running`.
        max_running: most requests computed at once.
        max_waiting: most requests that wait; more are refused.
        max_model_tokens: longest sequence; 0 takes the model's own limit.
        device_bytes: bytes for all pools; 0 takes 80 % of what is free on CUDA, and 1 GiB on a CPU.
        slots: slots per component, in place of a share of `device_bytes`.
        prefix_cache: whether prompts reuse anything.
        core: which tree core keeps the books: `auto`, `python` or `rust`.
        dtype: weights' type, or `auto` for the checkpoint's own.
        device: `cpu`, `cuda`, `cuda:1`, or `auto`.
        threads: CPU threads of torch; 0 takes torch's choice, but 1 on one or two cores.
    """

    page_tokens: int = 16
    chunk_tokens: int = 512
    max_batched_tokens: int = 2048
    max_running: int = 16
    max_waiting: int = 1024
    max_model_tokens: int = 0
    device_bytes: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    prefix_cache: bool = True
    core: str = "auto"
    dtype: str = "auto"
    device: str = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("page_tokens", "chunk_tokens", "max_running", "max_waiting"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be at least 1")
        for name in ("max_model_tokens", "device_bytes", "threads"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must not be negative")
        least = self.chunk_tokens + self.max_running
        if self.max_batched_tokens < least:
            raise ConfigError(
                f"max_batched_tokens is {self.max_batched_tokens}, it must be at least {least}",
                hint="a whole chunk must fit beside one token of every running request",
            )
