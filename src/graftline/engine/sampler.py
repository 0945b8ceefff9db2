"""Choosing the next token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from graftline.engine.api import SamplingParams
from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sampled:
    """One chosen token; the log-probabilities are of the model's own distribution, before any cut."""

    token: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


def check_sampling(params: SamplingParams) -> None:
    """Refuses values that have no meaning.

    Raises:
        ConfigError: names the value.
    """
    if params.max_tokens < 1:
        raise ConfigError(f"max_tokens is {params.max_tokens}, it must be at least 1")
    if not 0 <= params.temperature < math.inf:
        raise ConfigError(f"temperature is {params.temperature}, it must be finite and not negative")
    if not 0 < params.top_p <= 1:
        raise ConfigError(f"top_p is {params.top_p}, it must be above 0 and at most 1")
    if params.top_k < 0:
        raise ConfigError(f"top_k is {params.top_k}, it must not be negative")
    if not 0 <= params.min_p <= 1:
        raise ConfigError(f"min_p is {params.min_p}, it must be between 0 and 1")
    if params.logprobs is not None and params.logprobs < 0:
        raise ConfigError(f"logprobs is {params.logprobs}, it must not be negative")


class Sampler:
    """Draws one sequence's tokens; the same seed draws the same tokens.

    Args:
        params: how to choose; checked by `check_sampling`.
    """

    def __init__(self, params: SamplingParams) -> None:
        self._params = params
        self._random = torch.Generator()
        if params.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(params.seed % 2**63)

    def choose(self, logits: torch.Tensor) -> Sampled:
        """The next token.

        Args:
            logits: float32, shape (vocab,), on any device; not changed.
        """
        logits = logits.cpu()
        token = int(logits.argmax()) if self._params.temperature == 0 else self._draw(logits)
        count = self._params.logprobs
        if count is None:
            return Sampled(token)
        logprobs = torch.log_softmax(logits, dim=-1)
        top = torch.topk(logprobs, min(count, len(logprobs)))
        pairs = tuple(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        return Sampled(token, float(logprobs[token]), pairs)

    def _draw(self, logits: torch.Tensor) -> int:
        params = self._params
        # Relative to the largest, in double precision: no positive temperature can overflow or divide by 0.
        scaled = (logits - logits.max()).double() / params.temperature
        ordered, tokens = torch.sort(scaled, descending=True, stable=True)
        chances = torch.softmax(ordered, dim=-1)
        before = torch.cumsum(chances, dim=-1) - chances
        keep = (before < params.top_p) & (chances >= params.min_p * chances[0])
        if params.top_k:
            keep[params.top_k :] = False
        keep[0] = True
        chances = torch.where(keep, chances, 0.0)
        return int(tokens[torch.multinomial(chances, 1, generator=self._random)])
