"""What the tiers below had and was not brought up is told to the request (rule H-9); the text is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_support import (
    Client,
    Outcome,
    assert_greedy,
    break_loads,
    one_of_each_composition,
    random_prompt,
    replay_boundary,
    serving,
)

from graftline.cache import Shortfall
from graftline.engine import restores
from graftline.plan import Tier
from graftline.tiers.worth import BreakEven

FAMILIES = one_of_each_composition()
PROMPT = random_prompt(1, 75)
COUNT = 3


def tiers(*urls: str, **more: Any) -> dict[str, Any]:
    more = {"break_even": BreakEven(), "explain_pages": 1000, "prefetch_policy": "wait", **more}
    return {"host_ratio": 4.0, "stores": urls, "page_tokens": 4, **more}


def forget(client: Client, *gone: Tier) -> None:
    """Everything that is kept is in all tiers, and then no more in these."""
    with client.engine._changed:
        client.engine.cache.lower.flush()
    for tier in gone:
        client.engine.clear_cache(tier)


def asked_again(client: Client, family: str, *gone: Tier, **more: Any) -> tuple[Outcome, int]:
    """A prompt once more, after it left some tiers; and how deep it could be reused."""
    client.ask(PROMPT, COUNT)
    forget(client, *gone)
    outcome = client.ask(PROMPT, COUNT, label="again", **more)
    assert_greedy(family, [PROMPT], [outcome], COUNT)
    assert outcome.reuse is not None
    explanation = client.engine.explain("again")
    assert explanation is not None
    assert explanation.shortfalls == outcome.reuse.shortfalls
    stats = client.engine.stats()
    for short in outcome.reuse.shortfalls:
        assert stats.shortfalls[short.tier, short.reason] == 1
        assert stats.shortfall_tokens[short.tier, short.reason] == (short.lost_tokens or 0)
    return outcome, replay_boundary(PROMPT, client.engine.info.page_tokens)


@pytest.mark.rule("H-9")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_that_is_not_worth_it(family: str) -> None:
    slow = BreakEven(prefill_s_per_token=1e-9, host_s_per_byte=1.0)
    with serving(family, **tiers(break_even=slow)) as client:
        outcome, depth = asked_again(client, family, Tier.DEVICE)
        assert outcome.reuse.shortfalls == (Shortfall(Tier.HOST, depth, depth, "not worth it"),)
        assert outcome.reuse.matched_tokens == outcome.reuse.lost_tokens > 0, "the device lost it too"


@pytest.mark.rule("H-9")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_that_fails(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(family, **tiers()) as client:
        break_loads(client, monkeypatch)
        outcome, depth = asked_again(client, family, Tier.DEVICE)
        assert outcome.reuse.shortfalls == (Shortfall(Tier.HOST, depth, depth, "copy failed"),)


@pytest.mark.rule("H-9")
@pytest.mark.parametrize("family", FAMILIES)
def test_what_comes_up_whole_is_no_shortfall(family: str, tmp_path: Path) -> None:
    with serving(family, **tiers(f"file:{tmp_path}/store")) as client:
        for gone in ((), (Tier.DEVICE,), (Tier.DEVICE, Tier.HOST)):
            outcome, depth = asked_again(client, family, *gone)
            assert (outcome.reused, outcome.reuse.shortfalls) == (depth, ())
        assert client.engine.stats().shortfalls == {}


@pytest.mark.rule("H-9")
@pytest.mark.parametrize("family", FAMILIES)
def test_objects_that_are_damaged(family: str, tmp_path: Path) -> None:
    with serving(family, **tiers(f"file:{tmp_path}/store")) as client:
        client.ask(PROMPT, COUNT)
        forget(client)
        for path in (tmp_path / "store").rglob("*"):
            if path.is_file() and path.stat().st_size > 64:
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
        outcome, depth = asked_again(client, family, Tier.DEVICE, Tier.HOST)
        assert outcome.reuse.shortfalls == (Shortfall(Tier.STORE, depth, depth, "bad objects"),)


@pytest.mark.rule("H-9")
def test_a_store_that_is_down(tmp_path: Path) -> None:
    with serving("qwen3_5", **tiers("redis://127.0.0.1:1/0", drain_s=1.0)) as client:
        outcome, _ = asked_again(client, "qwen3_5", Tier.DEVICE, Tier.HOST)
        (short,) = outcome.reuse.shortfalls
        assert (short.tier, short.reached_tokens, short.lost_tokens) == (Tier.STORE, None, None)
        assert short.reason in ("down", "left alone")


@pytest.mark.rule("H-9")
def test_a_store_that_could_not_be_asked_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("qwen3_5", **tiers(f"file:{tmp_path}/store")) as client:
        client.ask(PROMPT, COUNT)
        monkeypatch.setattr(restores, "PREFETCHES_AT_ONCE", 0)  # as if others came first
        outcome, _ = asked_again(client, "qwen3_5", Tier.DEVICE, Tier.HOST, prefetch_policy="best_effort")
        assert outcome.reuse.shortfalls == (Shortfall(Tier.STORE, None, None, "not asked in time"),)


@pytest.mark.rule("H-9")
def test_without_the_cache_nothing_is_told(tmp_path: Path) -> None:
    slow = BreakEven(prefill_s_per_token=1e-9, host_s_per_byte=1.0)
    with serving("qwen3_5", **tiers(break_even=slow)) as client:
        client.ask(PROMPT, COUNT)
        forget(client, Tier.DEVICE)
        outcome = client.ask(PROMPT, COUNT, use_cache=False)
        assert_greedy("qwen3_5", [PROMPT], [outcome], COUNT)
        assert outcome.reuse is not None
        assert outcome.reuse.shortfalls == ()
