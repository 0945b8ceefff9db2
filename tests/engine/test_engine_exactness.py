"""Logits with the cache against logits without: bit for bit on the grid, within a bound elsewhere (rule X-2)."""

from __future__ import annotations

import pytest
import torch
from engine_support import plain, random_prompt, serving
from runner_support import BOUND, SERVED, difference

PAGE, GRID, COUNT = 8, 16, 3
PROMPT = random_prompt(1, 45)
OFF_GRID = 24  # a page boundary at which a cold run is never cut
# Largest difference relative to the spread of the logits.
BOUNDS = {torch.float32: BOUND, torch.bfloat16: 0.5}


def exact(client, prompt, **more) -> torch.Tensor:
    return client.logits_of(prompt, COUNT, **more)


@pytest.mark.rule("X-2")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", SERVED)
def test_a_cut_of_the_cold_run_is_restored_bit_for_bit(family: str, dtype: torch.dtype) -> None:
    other = PROMPT[: 2 * GRID] + random_prompt(2, 13)
    with serving(family, page_tokens=PAGE, chunk_tokens=GRID, dtype=dtype) as client:
        client.record_logits()
        without = exact(client, PROMPT, use_cache=False)
        assert torch.equal(exact(client, PROMPT), without)
        assert client.ask(PROMPT, 1).reused == 40
        assert torch.equal(exact(client, PROMPT), without)  # from the replay boundary

        client.engine.clear_cache()
        client.ask(PROMPT[: 2 * GRID + 1], 1)
        cold = exact(client, other, use_cache=False)
        assert torch.equal(exact(client, other), cold)  # from a boundary on the grid
        assert client.ask(other, 1).reused == 40


@pytest.mark.rule("X-2")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", SERVED)
def test_elsewhere_the_difference_is_bounded(family: str, dtype: torch.dtype) -> None:
    other = PROMPT[:OFF_GRID] + random_prompt(3, 21)
    with serving(family, page_tokens=PAGE, chunk_tokens=GRID, dtype=dtype) as client:
        client.record_logits()
        cold = exact(client, other, use_cache=False)
        client.ask(PROMPT[: OFF_GRID + 1], 1)
        outcome = client.ask(other, COUNT)
        assert outcome.reused == OFF_GRID
        warm = torch.stack([client.ends[len(other) + i] for i in range(COUNT)])
        assert difference(warm[:1], cold[:1]) < BOUNDS[dtype]
        if dtype == torch.float32:
            assert difference(warm, plain(family, [other], COUNT)[1][0]) < BOUNDS[dtype]
