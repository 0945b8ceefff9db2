"""Choosing tokens: against the distribution worked out by hand."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from graftline.engine.api import SamplingParams
from graftline.engine.sampler import Sampler, check_sampling
from graftline.errors import ConfigError

CHANCES = [0.4, 0.3, 0.2, 0.06, 0.04]
LOGITS = torch.tensor(CHANCES).log()[[3, 0, 4, 1, 2]]  # token 1 is the likeliest, then 3, 4, 0, 2
BY_RANK = [1, 3, 4, 0, 2]
DRAWS = 1000


def drawn(logits: torch.Tensor = LOGITS, **params) -> dict[int, float]:
    """Share of each token among many draws."""
    sampler = Sampler(SamplingParams(seed=1, **params))
    counts = Counter(sampler.choose(logits).token for _ in range(DRAWS))
    return {token: count / DRAWS for token, count in counts.items()}


def expected(kept: int, temperature: float = 1.0) -> dict[int, float]:
    """The chances of the likeliest tokens when no others may be drawn."""
    weights = [chance ** (1 / temperature) for chance in CHANCES[:kept]]
    return {BY_RANK[rank]: weight / sum(weights) for rank, weight in enumerate(weights)}


def assert_close(shares: dict[int, float], chances: dict[int, float]) -> None:
    """Each share within five standard deviations of its chance."""
    assert set(shares) <= set(chances)
    for token, chance in chances.items():
        assert abs(shares.get(token, 0) - chance) <= 5 * math.sqrt(chance * (1 - chance) / DRAWS)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    assert_close(drawn(temperature=temperature), expected(5, temperature))


@pytest.mark.parametrize(("top_k", "kept"), [(0, 5), (1, 1), (3, 3), (5, 5), (500, 5)])
def test_top_k(top_k: int, kept: int) -> None:
    assert_close(drawn(top_k=top_k), expected(kept))


@pytest.mark.parametrize(("top_p", "kept"), [(1.0, 5), (0.95, 4), (0.71, 3), (0.69, 2), (0.39, 1), (1e-9, 1)])
def test_top_p_keeps_the_fewest_tokens_that_reach_it(top_p: float, kept: int) -> None:
    assert_close(drawn(top_p=top_p), expected(kept))


@pytest.mark.parametrize(("min_p", "kept"), [(0.0, 5), (0.12, 4), (0.4, 3), (0.6, 2), (0.9, 1), (1.0, 1)])
def test_min_p_is_relative_to_the_likeliest(min_p: float, kept: int) -> None:
    assert_close(drawn(min_p=min_p), expected(kept))


def test_cuts_together() -> None:
    assert_close(drawn(top_k=4, top_p=0.8, min_p=0.6), expected(2))


def test_temperature_0_takes_the_likeliest_and_the_first_of_equals() -> None:
    assert Sampler(SamplingParams(temperature=0)).choose(LOGITS).token == 1
    assert Sampler(SamplingParams(temperature=0)).choose(torch.tensor([0.0, 2.0, 2.0])).token == 1


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("logits", [LOGITS, 1e4 * LOGITS, LOGITS + 3e4], ids=["usual", "large", "shifted"])
def test_the_smallest_temperatures_take_the_likeliest(temperature: float, logits: torch.Tensor) -> None:
    assert drawn(logits, temperature=temperature) == {1: 1.0}


def test_the_largest_temperature_takes_all_alike() -> None:
    assert_close(drawn(temperature=1e300), dict.fromkeys(range(5), 0.2))


def test_tokens_that_are_ruled_out_are_never_drawn() -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0])
    assert_close(drawn(logits, temperature=1.5), {1: 0.5, 3: 0.5})


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63, 2**64 + 7])
def test_a_seed_repeats_its_draws_whatever_else_is_drawn(seed: int) -> None:
    def draw() -> list[int]:
        sampler = Sampler(SamplingParams(seed=seed))
        return [(sampler.choose(LOGITS).token, torch.rand(3))[0] for _ in range(50)]

    assert draw() == draw()


def test_without_a_seed_draws_differ() -> None:
    draws = {tuple(Sampler(SamplingParams()).choose(LOGITS).token for _ in range(1)) for _ in range(100)}
    assert len(draws) > 1


def test_global_randomness_and_the_logits_stay_as_they_were() -> None:
    before, logits = torch.random.get_rng_state(), LOGITS.clone()
    Sampler(SamplingParams(top_p=0.5, top_k=2)).choose(logits)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_log_probabilities_are_those_of_the_model_before_any_cut(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_k=1, logprobs=3)
    chosen = Sampler(params).choose(LOGITS)
    assert chosen.token == 1
    assert chosen.logprob == pytest.approx(math.log(0.4), rel=1e-5)
    assert [token for token, _ in chosen.top_logprobs] == BY_RANK[:3]
    assert [math.exp(value) for _, value in chosen.top_logprobs] == pytest.approx(CHANCES[:3], rel=1e-5)


@pytest.mark.parametrize(("count", "told"), [(None, 0), (0, 0), (2, 2), (99, 5)])
def test_how_many_log_probabilities(count: int | None, told: int) -> None:
    chosen = Sampler(SamplingParams(temperature=0, logprobs=count)).choose(LOGITS)
    assert len(chosen.top_logprobs) == told
    assert (chosen.logprob is None) == (count is None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("logprobs", -1),
    ],
)
def test_values_without_a_meaning_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        check_sampling(SamplingParams(**{name: value}))


def test_the_ends_of_every_range_are_taken() -> None:
    check_sampling(SamplingParams())
    check_sampling(SamplingParams(1, temperature=0.0, top_p=1.0, top_k=0, min_p=1.0, logprobs=0))
