"""2,000 requests of mixed sizes, a fifth of them ended early at any moment, in pools too small for all."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine_support import Client, Outcome, Pending, assert_greedy, random_prompt, serving

from graftline.engine.api import SamplingParams
from graftline.errors import CapacityError

FAMILIES = ["gemma3", "qwen3_5", "lfm3", "mistral", "mamba", "llama4", "recurrent_gemma", "llama"]
REQUESTS = 250
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


@pytest.mark.rule("C-1")
@pytest.mark.rule("C-2")
@pytest.mark.parametrize("family", FAMILIES)
def test_pools_are_whole_after_a_crowd(family: str) -> None:
    config = {"slots": SLOTS, "chunk_tokens": 8, "max_waiting": 20, "max_batched_tokens": 32}
    with serving(family, **config) as client:
        crowd = Crowd(client, seed=FAMILIES.index(family))
        for number in range(REQUESTS):
            while not crowd.submit():
                crowd.collect()
            while len(crowd.open) >= AT_ONCE:
                crowd.collect()
            if number % 50 == 49:
                with client.engine._changed:
                    client.engine.cache.check()
        while crowd.open:
            crowd.collect()
        client.assert_idle_and_whole()

        assert len(crowd.ends) == REQUESTS
        assert set(crowd.ends) == {"length", "stop", "abort"}
        assert sum(client.engine.stats().requests.values()) == len(crowd.ends)
        for place in np.linspace(0, len(crowd.untouched) - 1, 25, dtype=int):
            prompt, count, outcome = crowd.untouched[place]
            assert_greedy(family, [prompt], [outcome], count)
        client.engine.clear_cache()
        assert all(use.free == use.capacity for use in client.engine.cache.uses())


def test_the_crowd_is_large_enough_to_matter() -> None:
    """The soak would say little if nothing were evicted, preempted or reused in it."""
    with serving("lfm3", slots=SLOTS, chunk_tokens=8, max_batched_tokens=32) as client:
        crowd = Crowd(client, seed=99)
        for _ in range(60):
            while not crowd.submit():
                crowd.collect()
        while crowd.open:
            crowd.collect()
        stats = client.engine.stats()
    assert len(FAMILIES) * REQUESTS == 2000
    assert stats.preemptions > 0
    assert stats.reused_tokens > 0
    assert min(stats.evicted_slots.values()) > 0
