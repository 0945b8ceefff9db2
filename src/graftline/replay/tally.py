"""What a replay counts."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from graftline.plan import Match

TURNS_SHOWN = 32
"""Turns from here on are counted together."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one component cost, by its reason (rule M-4)."""

    component: str
    reason: str
    requests: int
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Requests of one turn of their sessions; the last turn shown stands for all later ones."""

    turn: int
    requests: int
    prompt_tokens: int
    reused_tokens: int


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """One component's pool: its slots, what the tree held in the end, what was evicted in all."""

    component: str
    slots: int
    held_slots: int
    evicted_slots: int


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Time to the first token over all served requests, by the cost model."""

    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Result of one replay.

    Attributes:
        requests: all requests of the trace.
        refused: those that the pools can never hold; they reuse nothing and change nothing.
        prompt_tokens: of all requests, refused ones too.
        reused_tokens: tokens that were not computed again.
        path_tokens: tokens that the tree knew of the prompts, whether they could be reused or not.
        computed_tokens: prompt tokens that were computed.
        skipped_checkpoints: states that got no slot (rule C-8).
        unkept_answers: answers that found no room while others ran; their prompts were kept.
        refusals: what each component cost, the dearest first.
        turns: by turn.
        pools: in the order of the components.
        first_token: by the cost model.
        span_s: from the first arrival to the last answer, by the cost model; 0 one at a time.
        wall_s: how long the replay took.
    """

    requests: int
    refused: int
    prompt_tokens: int
    reused_tokens: int
    path_tokens: int
    computed_tokens: int
    skipped_checkpoints: int
    unkept_answers: int
    refusals: tuple[Refusal, ...]
    turns: tuple[TurnFigures, ...]
    pools: tuple[PoolFigures, ...]
    first_token: FirstToken
    span_s: float
    wall_s: float

    @property
    def hit_rate(self) -> float:
        """Reused share of the prompt tokens."""
        return self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(slots=True)
class Tally:
    """Counts as requests go by; `page_tokens` are real, those of a match are words of two a page."""

    page_tokens: int
    key_tokens: int
    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    reused_pages: int = 0
    path_pages: int = 0
    computed_tokens: int = 0
    unkept_answers: int = 0
    first_token_s: array[float] = field(default_factory=lambda: array("d"))
    lost: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    by_turn: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))

    def arrived(self, turn: int, prompt_tokens: int) -> None:
        """A request of the trace."""
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        of_turn = self.by_turn[min(turn, TURNS_SHOWN)]
        of_turn[0] += 1
        of_turn[1] += prompt_tokens

    def served(self, turn: int, prompt_tokens: int, match: Match, first_token_s: float) -> None:
        """A request that was served."""
        pages = match.boundary_tokens // self.key_tokens
        self.reused_pages += pages
        self.path_pages += match.path_tokens // self.key_tokens
        self.computed_tokens += prompt_tokens - pages * self.page_tokens
        self.first_token_s.append(first_token_s)
        self.by_turn[min(turn, TURNS_SHOWN)][2] += pages * self.page_tokens
        if match.limited_by:
            lost = self.lost[match.limited_by, match.reason]
            lost[0] += 1
            lost[1] += match.lost_tokens // self.key_tokens * self.page_tokens

    def figures(
        self, pools: tuple[PoolFigures, ...], skipped_checkpoints: int, span_s: float, wall_s: float
    ) -> RunFigures:
        """The result."""
        refusals = [Refusal(*key, *count) for key, count in self.lost.items()]
        refusals.sort(key=lambda refusal: (-refusal.lost_tokens, refusal.component, refusal.reason))
        return RunFigures(
            requests=self.requests,
            refused=self.refused,
            prompt_tokens=self.prompt_tokens,
            reused_tokens=self.reused_pages * self.page_tokens,
            path_tokens=self.path_pages * self.page_tokens,
            computed_tokens=self.computed_tokens,
            skipped_checkpoints=skipped_checkpoints,
            unkept_answers=self.unkept_answers,
            refusals=tuple(refusals),
            turns=tuple(TurnFigures(turn, *count) for turn, count in sorted(self.by_turn.items())),
            pools=pools,
            first_token=first_token(self.first_token_s),
            span_s=span_s,
            wall_s=wall_s,
        )


def first_token(samples: array[float]) -> FirstToken:
    """Statistics of times to the first token; zeros when there are none."""
    if not samples:
        return FirstToken(0.0, 0.0, 0.0, 0.0)
    times = np.frombuffer(samples, dtype=np.float64)
    p50, p90, p99 = (float(value) for value in np.percentile(times, (50, 90, 99)))
    return FirstToken(float(times.mean()), p50, p90, p99)
