"""Callers by the hundred that share prefixes, and some of whom lose patience."""

from __future__ import annotations

import random

import numpy as np
from engine_support import Client, Outcome, Pending, assert_greedy, random_prompt

from graftline.engine.api import SamplingParams
from graftline.errors import CapacityError

AT_ONCE = 24
# For a sequence of 96 tokens, a page of 4, a chunk of 8; for all eight that run at once they are too few.
SLOTS = {"full": 36, "swa": 20, "chunk": 20, "state": 18}
MOST_TOKENS = 96


class Crowd:
    """Callers that share prefixes, and some of whom lose patience."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.stems = [random_prompt(1000 + number, 60) for number in range(6)]
        self.open: list[tuple[list[int], int, bool, Pending]] = []
        self.ends: list[str] = []
        self.untouched: list[tuple[list[int], int, Outcome]] = []

    def submit(self) -> bool:
        """Asks for one text; False when the queue is full."""
        chance = self.random
        stem = chance.choice(self.stems)[: chance.randint(0, 60)]
        prompt = stem + random_prompt(chance.randrange(10**6), chance.choice((1, 1, 2, 3, 8, 20)))
        count = min(chance.choice((1, 2, 3, 5, 9, 20)), MOST_TOKENS - len(prompt))
        early = chance.random() < 0.2
        more = {
            "priority": chance.choice((0, 0, 0, 1)),
            "use_cache": chance.random() < 0.9,
            "salt": chance.choice(("", "", "", "tenant")),
            "marks": (len(stem),) if chance.random() < 0.3 else (),
            "sampling": SamplingParams(max_tokens=count, temperature=0, ignore_eos=True),
        }
        end = chance.choice((self.client.engine.abort, self.client.engine.abort, self.client.engine.finish))
        moment = chance.randint(0, count)
        told: list[object] = []

        def leave(event: object) -> None:
            told.append(event)
            if early and len(told) == moment:
                end(pending.ident)

        try:
            with self.client.engine._changed:
                pending = self.client.submit(prompt, also=leave, **more)
                if early and moment == 0 and chance.random() < 0.5:
                    end(pending.ident)
        except CapacityError:
            return False
        if early and moment == 0:
            end(pending.ident)  # from this thread, wherever the request may be by now
        self.open.append((prompt, count, early, pending))
        return True

    def collect(self) -> None:
        prompt, count, early, pending = self.open.pop(self.random.randrange(len(self.open)))
        outcome = pending.wait()
        self.ends.append(outcome.finish)
        if not early:
            self.untouched.append((prompt, count, outcome))

    def run(self, requests: int) -> None:
        """So many requests, a few at a time; all of them have ended afterwards."""
        for number in range(requests):
            while not self.submit():
                self.collect()
            while len(self.open) >= AT_ONCE:
                self.collect()
            if number % 50 == 49:
                with self.client.engine._changed:
                    self.client.engine.cache.check()
        while self.open:
            self.collect()

    def assert_answered(self, family: str, requests: int) -> None:
        """Everyone got an end, and a sample of those that stayed got the right text."""
        assert len(self.ends) == requests
        assert set(self.ends) == {"length", "stop", "abort"}
        assert sum(self.client.engine.stats().requests.values()) == len(self.ends)
        for place in np.linspace(0, len(self.untouched) - 1, 25, dtype=int):
            prompt, count, outcome = self.untouched[place]
            assert_greedy(family, [prompt], [outcome], count)
