"""One request on its way through the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

import numpy as np
import torch

from graftline.cache import CachedRequest
from graftline.engine.api import FinishReason, GenerationRequest, ReuseReport, TokenEvent
from graftline.engine.sampler import Sampled, Sampler
from graftline.key import Tokens

logger = logging.getLogger("graftline.engine")


class Phase(Enum):
    """Where a sequence is: `WAITING` holds nothing, `RUNNING` has a cached request, `ENDED` gave all back."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class Sequence:
    """A prompt, what was generated so far, and the cached request while it runs.

    Attributes:
        ident: the engine's id of the request.
        tokens: prompt and generated tokens; survives preemption.
        cached: its hold on the cache; None while it waits.
        reuse: what the first admission reused.
        counted: whether that is in the engine's counters.
        deaf: whether the caller's `on_event` has raised; it gets no more events.
    """

    def __init__(
        self, ident: int, request: GenerationRequest, on_event: Callable[[TokenEvent], None], order: int
    ) -> None:
        self.ident = ident
        self.request = request
        self.order = order
        self.phase = Phase.WAITING
        self.cached: CachedRequest | None = None
        self.reuse: ReuseReport | None = None
        self.generated: list[int] = []
        self.counted = False
        self._sampler = Sampler(request.sampling)
        self._on_event = on_event
        self._reuse_told = False
        self.deaf = False

    @property
    def tokens(self) -> Tokens:
        """Prompt and generated tokens, u32; a new array when something was generated."""
        if not self.generated:
            return self.request.tokens
        return np.concatenate([self.request.tokens, np.asarray(self.generated, dtype=np.uint32)])

    @property
    def urgency(self) -> tuple[int, int]:
        """Order of admission: larger priority first, then the older one."""
        return (-self.request.priority, self.order)

    def choose(self, logits: torch.Tensor) -> Sampled:
        """Samples the next token."""
        return self._sampler.choose(logits)

    def tell(self, token: Sampled | None, finish: FinishReason | None = None, error: str = "") -> None:
        """Gives the caller one event; the first one carries the reuse report.

        A caller whose `on_event` raises gets no more events; the fault is logged and stays its own.
        """
        if self.deaf:
            return
        reuse = None if self._reuse_told else self.reuse
        self._reuse_told = self._reuse_told or reuse is not None
        if token is None:
            event = TokenEvent(None, finish, reuse, error=error)
        else:
            event = TokenEvent(token.token, finish, reuse, token.logprob, token.top_logprobs, error)
        try:
            self._on_event(event)
        except Exception:
            logger.exception("on_event of request %d raised", self.ident)
            self.deaf = True
