"""What one engine computed another finds in a store, and the text stays the same (rule X-8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from crowd import SLOTS, Crowd
from engine_support import (
    PATIENCE_S,
    Client,
    assert_greedy,
    layout_of,
    one_of_each_composition,
    random_prompt,
    replay_boundary,
    serving,
)

from graftline.engine import load
from graftline.engine.scheduler import Scheduler
from graftline.engine.sizes import slots_needed
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.tiers.store.base import Key, Store
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.open import open_store
from graftline.tiers.worth import BreakEven

FAMILIES = one_of_each_composition()
CASES = [(family, page) for family in FAMILIES for page in (1, 16, 64)]
PROMPT = random_prompt(1, 75)


def with_store(*urls: str, **more: Any) -> dict[str, Any]:
    return {
        "host_ratio": 4.0,
        "break_even": BreakEven(),
        "stores": urls,
        "prefetch_policy": "wait",
        **more,
    }


def settle(client: Client) -> None:
    """Everything that is kept is in the host and in the store."""
    with client.engine._changed:
        client.engine.cache.lower.flush()


def forget_memory(client: Client) -> None:
    settle(client)
    for tier in (Tier.DEVICE, Tier.HOST):
        client.engine.clear_cache(tier)
    stats = client.engine.stats()
    assert all(use.held == 0 for use in (*stats.pools, *stats.host_pools))


@pytest.mark.rule("X-8")
@pytest.mark.parametrize(("family", "page_tokens"), CASES)
def test_a_prompt_comes_back_from_a_file_after_a_restart_bit_for_bit(
    family: str, page_tokens: int, tmp_path: Path
) -> None:
    prompt, count = random_prompt(1, 3 * page_tokens + 45), 3
    sizes = {"page_tokens": page_tokens, "chunk_tokens": 64, "max_batched_tokens": 128}
    config = {**sizes, **with_store(f"file:{tmp_path}/store")}
    with serving(family, **config) as client:
        client.record_logits()
        cold = client.logits_of(prompt, count)  # closing gives it the time to reach the store
    with serving(family, **config) as client:
        client.record_logits()
        assert torch.equal(client.logits_of(prompt, count), cold)
        forget_memory(client)
        outcome = client.ask(prompt, count)
        assert_greedy(family, [prompt], [outcome], count)
        assert outcome.reuse is not None
        replay = replay_boundary(prompt, client.engine.info.page_tokens)
        assert (outcome.reuse.reused_tokens, outcome.reuse.store_tokens) == (replay, replay)
        assert (outcome.reuse.device_tokens, outcome.reuse.host_tokens) == (0, 0)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_in_three_tiers(family: str, tmp_path: Path) -> None:
    """Each turn from another tier: of what a tier brings only what the one above lacks is counted."""
    with serving(family, **with_store(f"file:{tmp_path}/store")) as client:
        page, history, computed = client.engine.info.page_tokens, [], 0
        for turn in range(6):
            history = history + random_prompt(turn, 25)
            outcome = client.ask(history, 5)
            assert_greedy(family, [history], [outcome], 5)
            reuse = outcome.reuse
            assert reuse is not None
            assert reuse.reused_tokens == computed // page * page
            tokens = {0: reuse.device_tokens, 1: reuse.host_tokens, 2: reuse.store_tokens}
            assert tokens[(turn - 1) % 3 if turn else 0] == reuse.reused_tokens
            computed, history = len(history) + 4, history + outcome.tokens
            if turn % 3 == 1:
                settle(client)
                client.engine.clear_cache()
            if turn % 3 == 2:
                forget_memory(client)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.rule("K-3")
@pytest.mark.parametrize("family", ["qwen3_5", "gemma3"])
def test_namespaces_never_meet_in_a_store(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_store(f"file:{tmp_path}/store")
    everyone: Sequence[dict[str, Any]] = ({}, {"salt": "a"}, {"adapter": "a"}, {"salt": "a", "adapter": "a"})
    with serving(family, **config) as client:
        for more in everyone:
            assert client.ask(PROMPT, 2, **more).reused == 0
            forget_memory(client)
        for more in everyone:
            outcome = client.ask(PROMPT, 2, **more)
            assert outcome.reuse is not None
            assert outcome.reuse.store_tokens == outcome.reused == replay_boundary(PROMPT, 4)
    with monkeypatch.context() as other:
        other.setattr(load, "model_fingerprint", lambda _: "another model of the same shape")
        with serving(family, **config) as client:
            assert client.ask(PROMPT, 2).reused == 0
    namespace = Scheduler._namespace
    with monkeypatch.context() as newer, serving(family, **config) as client:
        newer.setattr(Scheduler, "_namespace", lambda *to: replace(namespace(*to), weight_epoch=1))
        assert client.ask(PROMPT, 2).reused == 0
        newer.undo()
        assert client.ask(PROMPT, 2).reused == replay_boundary(PROMPT, 4)
    with serving(family, **{**config, "page_tokens": 8}) as client:
        outcome = client.ask(PROMPT, 2)
        assert outcome.reused == 0
        assert_greedy(family, [PROMPT], [outcome], 2)


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_eight_equal_prompts_read_the_store_once(family: str, tmp_path: Path) -> None:
    with serving(family, **with_store(f"file:{tmp_path}/store")) as client:
        client.ask(PROMPT, 2)
        forget_memory(client)
        client.ask(PROMPT, 2)
        once = client.engine.stats().stores[0].read_bytes
        forget_memory(client)
        outcomes = client.ask_all([PROMPT] * 8, 3)
        assert_greedy(family, [PROMPT] * 8, outcomes, 3)
        replay = replay_boundary(PROMPT, client.engine.info.page_tokens)
        assert [outcome.reused for outcome in outcomes] == [replay] * 8
        assert client.engine.stats().stores[0].read_bytes == 2 * once
        assert client.engine.stats().store_tokens == 2 * replay


@pytest.mark.rule("C-1")
@pytest.mark.rule("C-2")
@pytest.mark.rule("X-8")
@pytest.mark.parametrize("write_policy", ["write_through", "write_back"])
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "lfm3", "llama4"])
def test_pools_are_whole_after_a_crowd_in_three_tiers(family: str, write_policy: str, tmp_path: Path) -> None:
    """Every tier is too small for all; requests end early wherever they are."""
    config = {"slots": SLOTS, "chunk_tokens": 8, "max_waiting": 20, "max_batched_tokens": 32}
    store = with_store(f"file:{tmp_path}/store?size=4MB", host_ratio=2.0, write_policy=write_policy)
    with serving(family, **config, **{**store, "prefetch_policy": "timeout"}) as client:
        crowd = Crowd(client, seed=len(family))
        crowd.run(150)
        settle(client)
        client.assert_idle_and_whole()
        crowd.assert_answered(family, 150)
        stats = client.engine.stats()
        assert stats.host_tokens + stats.store_tokens > 0
        forget_memory(client)
        assert all(
            use.free == use.capacity
            for use in (*client.engine.stats().pools, *client.engine.stats().host_pools)
        )


# -- policies and faults ----------------------------------------------------------------------------------


class Gated:
    """A store whose reads wait for the gate, once it is shut."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.open, self.asked = threading.Event(), threading.Event()
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        self.asked.set()
        self.open.wait(PATIENCE_S)
        return self._store.get_into(keys, buffers)


@contextmanager
def gated(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Iterator[tuple[Client, Gated]]:
    """An engine whose store has the prompt, and nothing else has it; the gate is shut."""
    gate = Gated(open_store("memory:"))
    monkeypatch.setattr(load, "open_stores", lambda _: ChainStore([GuardedStore(gate)]))
    with serving("inkling", **with_store("memory:", **more)) as client:
        client.ask(PROMPT, 2)
        forget_memory(client)
        gate.open.clear()
        try:
            yield client, gate
        finally:
            gate.open.set()


@pytest.mark.rule("X-8")
def test_a_request_that_waits_for_the_store_lets_others_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    other = random_prompt(2, 20)
    with gated(monkeypatch) as (client, gate):
        pending = client.submit(PROMPT, 2)
        assert gate.asked.wait(PATIENCE_S)
        passing = client.ask(other, 2, prefetch_policy="best_effort")
        assert_greedy("inkling", [other], [passing], 2)
        assert client.engine.stats().waiting == 1
        gate.open.set()
        outcome = pending.wait()
        assert_greedy("inkling", [PROMPT], [outcome], 2)
        assert outcome.reused == replay_boundary(PROMPT, 4)


@pytest.mark.rule("X-8")
@pytest.mark.parametrize(
    "more", [{"prefetch_policy": "best_effort"}, {"prefetch_policy": "timeout", "prefetch_timeout_s": 0.05}]
)
def test_a_request_goes_on_without_the_store(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked per request; what comes later stays in the host."""
    with gated(monkeypatch) as (client, gate):
        outcome = client.ask(PROMPT, 2, **more)
        assert_greedy("inkling", [PROMPT], [outcome], 2)
        assert outcome.reused == 0
        gate.open.set()
        settle(client)
        again = client.ask(PROMPT, 2)
        assert_greedy("inkling", [PROMPT], [again], 2)
        assert again.reused == replay_boundary(PROMPT, 4)


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("end", ["abort", "finish"])
def test_a_request_that_ends_while_the_store_is_read(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(monkeypatch) as (client, gate):
        pending = client.submit(PROMPT, 2)
        assert gate.asked.wait(PATIENCE_S)
        getattr(client.engine, end)(pending.ident)
        assert pending.wait().finish == {"abort": "abort", "finish": "stop"}[end]
        gate.open.set()
        assert_greedy("inkling", [PROMPT], [client.ask(PROMPT, 2)], 2)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
def test_an_engine_closes_while_the_store_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(monkeypatch, drain_s=0.1) as (client, gate):
        pending = client.submit(PROMPT, 2)
        assert gate.asked.wait(PATIENCE_S)
        closing = threading.Thread(target=client.engine.close)
        closing.start()
        assert pending.wait().finish == "abort"
        gate.open.set()
        closing.join(PATIENCE_S)
        assert not closing.is_alive()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_flipped_bits_cost_a_computation(family: str, tmp_path: Path) -> None:
    with serving(family, **with_store(f"file:{tmp_path}/store")) as client:
        client.ask(PROMPT, 2)
        forget_memory(client)
        for path in (tmp_path / "store").rglob("*"):
            if path.is_file() and path.stat().st_size > 64:
                data = bytearray(path.read_bytes())
                data[len(data) // 2] ^= 1
                path.write_bytes(data)
        outcome = client.ask(PROMPT, 3)
        assert_greedy(family, [PROMPT], [outcome], 3)
        assert outcome.reused == 0
        stats = client.engine.stats()
        assert sum(stats.stores[0].bad.values()) > 0
        forget_memory(client)
        again = client.ask(PROMPT, 3)  # it was written anew
        assert_greedy(family, [PROMPT], [again], 3)
        assert again.reused == replay_boundary(PROMPT, client.engine.info.page_tokens)


@pytest.mark.rule("X-8")
def test_a_store_that_is_down_costs_nothing_but_time(tmp_path: Path) -> None:
    with serving("qwen3_5", **with_store("redis://127.0.0.1:1/0", drain_s=1.0)) as client:
        outcomes = [client.ask(PROMPT, 2) for _ in range(2)]
        assert_greedy("qwen3_5", [PROMPT] * 2, outcomes, 2)
        assert outcomes[1].reused == replay_boundary(PROMPT, 4)
        assert sum(client.engine.stats().stores[0].errors.values()) > 0


@pytest.mark.rule("X-8")
def test_a_request_goes_on_when_the_store_that_it_waits_for_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(monkeypatch) as (client, gate):
        pending = client.submit(PROMPT, 2)
        assert gate.asked.wait(PATIENCE_S)
        letting_go = threading.Timer(0.1, gate.open.set)  # the read under way is waited for
        letting_go.start()
        assert client.engine.detach_store(client.engine.stats().stores[0].url)
        assert_greedy("inkling", [PROMPT], [pending.wait()], 2)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-9")
def test_the_engine_sleeps_while_it_waits_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(monkeypatch) as (client, gate):
        pending = client.submit(PROMPT, 2)
        assert gate.asked.wait(PATIENCE_S)
        plan, plans = client.engine._scheduler.plan, []

        def counting() -> Any:
            plans.append(1)
            return plan()

        monkeypatch.setattr(client.engine._scheduler, "plan", counting)
        threading.Event().wait(0.2)
        assert len(plans) < 3
        gate.open.set()
        assert pending.wait().reused == replay_boundary(PROMPT, 4)
        settle(client)
        plans.clear()
        threading.Event().wait(0.2)
        assert len(plans) < 3


# -- at run time ------------------------------------------------------------------------------------------


@pytest.mark.rule("X-8")
def test_stores_come_and_go_at_run_time(tmp_path: Path) -> None:
    one, two = f"file:{tmp_path}/one", f"file:{tmp_path}/two"
    with serving("qwen3_5", **with_store()) as client:
        client.engine.attach_store(one)
        client.ask(PROMPT, 2)
        forget_memory(client)
        client.engine.attach_store(two)
        with pytest.raises(ConfigError, match="attached"):
            client.engine.attach_store(one)
        assert client.ask(PROMPT, 2).reused == 72
        other = random_prompt(2, 75)
        client.ask(other, 2)  # goes to both
        forget_memory(client)
        urls = [store.url for store in client.engine.stats().stores]
        assert client.engine.detach_store(urls[0])
        assert not client.engine.detach_store(urls[0])
        assert client.ask(PROMPT, 2).reused == 72, "kept again, it was written to the store that lacked it"
        assert client.ask(other, 2).reused == 72
        forget_memory(client)
        client.engine.clear_cache(Tier.STORE)
        assert client.ask(other, 2).reused == 0
        assert client.engine.detach_store(urls[1])
        assert client.engine.stats().stores == ()
        forget_memory(client)
        assert_greedy("qwen3_5", [PROMPT], [client.ask(PROMPT, 2)], 2)
        settle(client)
        client.assert_idle_and_whole()
    with serving("qwen3_5") as client, pytest.raises(ConfigError, match="host"):
        client.engine.attach_store(one)


@pytest.mark.rule("X-8")
def test_the_speed_of_the_store_is_measured(tmp_path: Path) -> None:
    more = {**with_store(f"file:{tmp_path}/store"), "break_even": None}
    with serving("qwen3_5", **more) as client:
        worth = client.engine.info.break_even
        assert worth is not None
        assert worth.store_latency_s > 0
        assert worth.store_is_known
        assert client.engine.info.stores == tuple(store.url for store in client.engine.stats().stores)


class Absent:
    """A store that is down until `back` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.back = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name not in ("close", "url") and not self.back.is_set():
            raise OSError("down")
        return getattr(self._store, name)


def ask_until(client: Client, holds: Callable[[], bool]) -> None:
    """Asks new prompts until it holds: each asks the store."""
    for seed in range(100, 400):
        prompt = random_prompt(seed, 20)
        assert_greedy("qwen3_5", [prompt], [client.ask(prompt, 1)], 1)
        settle(client)
        if holds():
            return
    raise AssertionError("it did not happen")


@pytest.mark.rule("H-6")
@pytest.mark.rule("X-8")
def test_a_store_that_is_down_at_start_is_measured_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Absent(open_store("memory:"))
    guard = GuardedStore(absent, GuardLimits(pause_s=0.01, pause_s_max=0.01))
    monkeypatch.setattr(load, "open_stores", lambda _: ChainStore([guard]))
    more = {**with_store("memory:"), "break_even": None}
    with serving("qwen3_5", **more) as client:

        def known() -> bool:
            return client.engine.stats().break_even.store_is_known

        assert client.engine.info.break_even is not None
        assert not client.engine.info.break_even.store_is_known
        assert_greedy("qwen3_5", [PROMPT], [client.ask(PROMPT, 2)], 2)
        assert not known()
        absent.back.set()
        ask_until(client, known)
        assert client.engine.stats().break_even.store_latency_s > 0
        client.ask(PROMPT, 2)
        forget_memory(client)
        outcome = client.ask(PROMPT, 2)
        assert_greedy("qwen3_5", [PROMPT], [outcome], 2)


@pytest.mark.rule("H-6")
@pytest.mark.rule("X-8")
@pytest.mark.parametrize("others", [0, 1])
def test_a_store_attached_at_run_time_is_measured_and_counted(others: int, tmp_path: Path) -> None:
    """As the first one, and below another; speeds that were given stay as they are."""
    for given in (None, BreakEven()):
        folder = tmp_path / ("given" if given else "measured")
        urls = [f"file:{folder}/{number}" for number in range(others)]
        with serving("qwen3_5", **{**with_store(*urls), "break_even": given}) as client:
            before = client.engine.stats().break_even
            client.engine.attach_store(f"file:{folder}/late?size=10MB")
            if given is None:
                assert not client.engine.stats().break_even.store_is_known
            ask_until(client, lambda: client.engine.stats().break_even.store_is_known)
            after, figures = client.engine.stats().break_even, client.engine.stats().stores[-1]
            assert (after == before) == (given is not None)
            assert after.prefill_s_per_token == before.prefill_s_per_token
            assert (after.store_latency_s > 0) == (given is None)
            assert len(client.engine.stats().stores) == others + 1
            assert (figures.calls["put"] > 0, figures.written_bytes > 0) == (True, True)
            client.assert_idle_and_whole()


@pytest.mark.rule("H-7", "X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_conversations_in_turn_over_a_host_that_holds_one(family: str) -> None:
    """What one has kept is still on its way to the store when the next one asks for all of the host."""
    longest, agents, turns = 96, 3, 4
    components = layout_of(family).components
    slots = {plan.name: slots_needed(plan.rule, 4, longest + 8, 16) + 4 for plan in components}
    config = with_store("memory:", host_ratio=1.0, slots=slots, chunk_tokens=16, max_batched_tokens=64)
    with serving(family, **config) as client:
        page = client.engine.info.page_tokens
        texts = [random_prompt(agent, longest) for agent in range(agents)]
        for turn in range(turns):
            length = longest // turns * (turn + 1)
            for agent, text in enumerate(texts):
                outcome = client.ask(text[:length], 2, session_id=f"agent {agent}")
                assert_greedy(family, [text[:length]], [outcome], 2)
                assert outcome.reuse is not None
                assert outcome.reuse.shortfalls == ()
                if turn:
                    assert outcome.reused >= (longest // turns * turn - 1) // page * page
        settle(client)
        client.assert_idle_and_whole()
