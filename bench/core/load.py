"""The inputs of the benchmarks of the cores; numpy alone is needed, so that any system can be given them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

VOCABULARY = 150_000
TokenIds = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Load:
    """Sessions, of which `active` take turns at random; pools hold `capacity_tokens` each."""

    sessions: int = 2000
    turns: int = 8
    active: int = 256
    shared_tokens: int = 2048
    turn_tokens: int = 512
    capacity_tokens: int = 524_288
    states: int = 512

    def window_tokens(self, lookback_tokens: int) -> int:
        """Capacity of a window's pool: a quarter, or what a few requests need."""
        return max(self.capacity_tokens // 4, 4 * (lookback_tokens + 64))


def random_tokens(count: int, seed: int) -> TokenIds:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count, dtype=np.uint32)


def session_texts(load: Load) -> Iterator[TokenIds]:
    """The whole text of each turn, in the order in which the turns are taken."""
    picks = random.Random(1)
    shared = random_tokens(load.shared_tokens, seed=1)
    live = dict.fromkeys(range(min(load.active, load.sessions)), (shared, 0))
    opened = len(live)
    while live:
        number = picks.choice(list(live))
        before, taken = live.pop(number)
        text = np.concatenate([before, random_tokens(load.turn_tokens, seed=1000 + number * 100 + taken)])
        yield text
        if taken + 1 < load.turns:
            live[number] = (text, taken + 1)
        elif opened < load.sessions:
            live[opened] = (shared, 0)
            opened += 1
