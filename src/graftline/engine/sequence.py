"""One request on its way through the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

import numpy as np
import torch

from graftline.cache import CachedRequest, OpenSession
from graftline.engine.api import FinishReason, GenerationRequest, ReuseReport, TokenEvent
from graftline.engine.coalesce import Wait
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
        session: as its first try to run has opened it; closed since, it is not opened again (rule S-4).
        reuse: what the first admission reused.
        counted: whether that is in the engine's counters.
        wait: the running request that it waits for, or waited for last (rule X-7).
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
        self.session: OpenSession | None = None
        self.reuse: ReuseReport | None = None
        self.generated: list[int] = []
        self.counted = False
        self.wait: Wait | None = None
        self._cached_before_tokens: int | None = None
        self._waited_tokens = 0
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

    def may_wait(self, wait: Wait) -> bool:
        """Whether a wait leads on: only deeper than any that came to its end, so that waiting ends."""
        return wait.boundary_tokens > self._waited_for_tokens()

    def begin_wait(self, wait: Wait) -> None:
        """Waits for a running request."""
        self._waited_tokens = self._waited_for_tokens()
        if self._cached_before_tokens is None:
            self._cached_before_tokens = wait.cached_tokens
        self.wait = wait

    def end_wait(self, reused_tokens: int) -> int:
        """Waits no longer; returns how many of the reused tokens the waiting has brought."""
        before, self.wait = self._cached_before_tokens, None
        return 0 if before is None else max(0, reused_tokens - before)

    def _waited_for_tokens(self) -> int:
        """Deepest boundary that was reached while this sequence waited for it."""
        reached = self.wait.boundary_tokens if self.wait is not None and self.wait.reached else 0
        return max(self._waited_tokens, reached)

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
