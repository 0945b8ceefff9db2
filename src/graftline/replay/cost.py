"""How long a request would take: a simple model of time for replays, which compute nothing."""

from __future__ import annotations

from dataclasses import dataclass

from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CostModel:
    """Speeds, all of one sequence. The time to the first token is waiting, loading, then computing.

    Attributes:
        prefill_tokens_per_s: prompt tokens computed a second; prompts are computed one after another.
        decode_tokens_per_s: tokens that one request generates a second, whatever runs beside it.
        load_bytes_per_s: speed at which values come from lower tiers.
        token_bytes: bytes of one cached token, of all components.
        overhead_s: what every request costs.
    """

    prefill_tokens_per_s: float = 8000.0
    decode_tokens_per_s: float = 50.0
    load_bytes_per_s: float = 20e9
    token_bytes: int = 0
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_s", "decode_tokens_per_s", "load_bytes_per_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be above 0")
        if self.token_bytes < 0 or self.overhead_s < 0:
            raise ConfigError(
                f"token_bytes {self.token_bytes} and overhead_s {self.overhead_s} must not be negative"
            )

    def first_token_s(self, computed_tokens: int, loaded_tokens: int = 0) -> float:
        """Seconds from the start of a request's service to its first token."""
        load_s = loaded_tokens * self.token_bytes / self.load_bytes_per_s
        return self.overhead_s + load_s + computed_tokens / self.prefill_tokens_per_s

    def answer_s(self, answer_tokens: int) -> float:
        """Seconds from the first token to the last."""
        return max(0, answer_tokens - 1) / self.decode_tokens_per_s
