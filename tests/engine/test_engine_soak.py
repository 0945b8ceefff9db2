"""2,000 requests of mixed sizes, a fifth of them ended early at any moment, in pools too small for all."""

from __future__ import annotations

import pytest
from crowd import SLOTS, Crowd
from engine_support import serving

FAMILIES = ["gemma3", "qwen3_5", "lfm3", "mistral", "mamba", "llama4", "recurrent_gemma", "llama"]
REQUESTS = 250


@pytest.mark.rule("C-1")
@pytest.mark.rule("C-2")
@pytest.mark.parametrize("family", FAMILIES)
def test_pools_are_whole_after_a_crowd(family: str) -> None:
    config = {"slots": SLOTS, "chunk_tokens": 8, "max_waiting": 20, "max_batched_tokens": 32}
    with serving(family, **config) as client:
        crowd = Crowd(client, seed=FAMILIES.index(family))
        crowd.run(REQUESTS)
        client.assert_idle_and_whole()
        crowd.assert_answered(family, REQUESTS)
        client.engine.clear_cache()
        assert all(use.free == use.capacity for use in client.engine.cache.uses())


def test_the_crowd_is_large_enough_to_matter() -> None:
    """The soak would say little if nothing were evicted, preempted or reused in it."""
    with serving("lfm3", slots=SLOTS, chunk_tokens=8, max_batched_tokens=32) as client:
        crowd = Crowd(client, seed=99)
        crowd.run(60)
        stats = client.engine.stats()
    assert len(FAMILIES) * REQUESTS == 2000
    assert stats.preemptions > 0
    assert stats.reused_tokens > 0
    assert min(stats.evicted_slots.values()) > 0
