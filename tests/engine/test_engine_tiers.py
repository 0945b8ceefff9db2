"""What the device had no room for comes back from the tiers below, and the text stays the same (rule X-8)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from engine_support import (
    PATIENCE_S,
    Client,
    assert_greedy,
    break_loads,
    layout_of,
    one_of_each_composition,
    patch_loads,
    random_prompt,
    replay_boundary,
    serving,
)
from runner_support import SERVED

from graftline.engine import EngineConfig
from graftline.engine.sizes import slots_needed
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.tiers.worth import BreakEven

FAMILIES = one_of_each_composition()
CASES = [(family, 16) for family in SERVED] + [(family, page) for family in FAMILIES for page in (1, 64)]
ALWAYS = BreakEven()  # loads whatever is there


def tiers(**more: Any) -> dict[str, Any]:
    return {"host_ratio": 4.0, "break_even": ALWAYS, **more}


def settle(client: Client) -> None:
    """Everything that is kept is in the host."""
    with client.engine._changed:
        client.engine.cache.lower.flush()


def forget_device(client: Client) -> None:
    settle(client)
    client.engine.clear_cache()
    with client.engine._changed:
        assert all(use.held == 0 for use in client.engine.cache.uses())


def scant(family: str) -> dict[str, int]:
    """Room on the device for a conversation of 128 tokens and little more."""
    layout = layout_of(family)
    page = max(4, layout.page_multiple)
    return {plan.name: slots_needed(plan.rule, page, 128, 16) + 2 for plan in layout.components}


@pytest.mark.rule("X-8")
@pytest.mark.parametrize(("family", "page_tokens"), CASES)
def test_a_prompt_comes_back_from_the_host_bit_for_bit(family: str, page_tokens: int) -> None:
    prompt, count = random_prompt(1, 3 * page_tokens + 45), 3
    with serving(
        family, page_tokens=page_tokens, chunk_tokens=64, max_batched_tokens=128, **tiers()
    ) as client:
        client.record_logits()
        cold = client.logits_of(prompt, count)
        forget_device(client)
        warm = client.logits_of(prompt, count)
        assert torch.equal(warm, cold)
        forget_device(client)
        outcome = client.ask(prompt, count)
        assert_greedy(family, [prompt], [outcome], count)
        replay = replay_boundary(prompt, client.engine.info.page_tokens)
        assert outcome.reuse is not None
        assert (outcome.reuse.reused_tokens, outcome.reuse.host_tokens) == (replay, replay)
        assert outcome.reuse.device_tokens == 0
        assert outcome.reuse.restored_ms > 0
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_the_boundary_needs_is_moved(family: str) -> None:
    """A window comes back as its window, a checkpoint as one state: no byte more than the rules need."""
    prompt = random_prompt(1, 75)
    with serving(family, page_tokens=4, **tiers()) as client:
        client.ask(prompt, 2)
        forget_device(client)
        replay = client.ask(prompt, 2).reused
        page, flow = client.engine.info.page_tokens, client.engine.cache.lower.flow
        for spec in client.engine.cache.components:
            needed = replay // page - spec.rule.first_page(replay // page, page)
            assert flow.pages[spec.name, Tier.HOST, Tier.DEVICE] == needed
            assert flow.bytes[spec.name, Tier.HOST, Tier.DEVICE] == needed * spec.slot_bytes


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_device_still_has_is_not_moved(family: str) -> None:
    """Only the tail was evicted: only the tail comes back, and all of it counts."""
    prompt = random_prompt(1, 75)
    with serving(family, page_tokens=4, **tiers()) as client:
        client.ask(prompt, 2)
        settle(client)
        for plan in layout_of(family).components:
            client.evict(plan.name, 3)
        outcome = client.ask(prompt, 3)
        assert_greedy(family, [prompt], [outcome], 3)
        replay = replay_boundary(prompt, client.engine.info.page_tokens)
        assert outcome.reused == replay
        flow = client.engine.cache.lower.flow
        for plan in layout_of(family).components:
            assert flow.pages[plan.name, Tier.HOST, Tier.DEVICE] <= 3


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_eight_equal_prompts_load_once(family: str) -> None:
    prompt = random_prompt(1, 75)
    with serving(family, page_tokens=4, **tiers()) as client:
        client.ask(prompt, 2)
        forget_device(client)
        outcomes = client.ask_all([prompt] * 8, 3)
        assert_greedy(family, [prompt] * 8, outcomes, 3)
        page = client.engine.info.page_tokens
        assert [outcome.reused for outcome in outcomes] == [replay_boundary(prompt, page)] * 8
        flow, boundary = client.engine.cache.lower.flow, replay_boundary(prompt, page) // page
        for spec in client.engine.cache.components:
            needed = boundary - spec.rule.first_page(boundary, page)
            assert flow.pages[spec.name, Tier.HOST, Tier.DEVICE] == needed
        assert sum(outcome.reuse.host_tokens for outcome in outcomes if outcome.reuse) == boundary * page
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_conversations_larger_than_the_device_lose_nothing(family: str) -> None:
    """Six conversations in turns; the device has room for one or two of them."""
    with serving(family, page_tokens=4, slots=scant(family), **tiers(host_ratio=16.0)) as client:
        page, histories, computed = client.engine.info.page_tokens, [[] for _ in range(6)], [0] * 6
        for turn in range(5):
            for number in range(6):
                histories[number] = histories[number] + random_prompt(100 * turn + number, 19)
                outcome = client.ask(histories[number], 5)
                assert_greedy(family, [histories[number]], [outcome], 5)
                assert outcome.reused == computed[number] // page * page, (turn, number)
                computed[number] = len(histories[number]) + 4
                histories[number] = histories[number] + outcome.tokens
                settle(client)
        assert client.engine.stats().evicted_slots[layout_of(family).components[0].name] > 0
        assert client.engine.stats().host_tokens > 0
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "inkling", "llama"])
def test_a_preempted_request_comes_back_from_the_host(family: str) -> None:
    prompts = [random_prompt(seed, 20) for seed in range(6)]
    slots = {"full": 26, "swa": 40, "state": 16}
    with serving(family, page_tokens=4, slots=slots, **tiers(host_ratio=20.0)) as client:
        assert_greedy(family, prompts, client.ask_all(prompts, 40), 40)
        assert client.engine.stats().preemptions > 0
        settle(client)
        client.assert_idle_and_whole()
        moved = client.engine.cache.lower.flow.pages
        assert sum(pages for (_, source, _), pages in moved.items() if source is Tier.HOST) > 0


# -- faults ---------------------------------------------------------------------------------------------


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_that_fails_costs_a_computation(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = random_prompt(1, 75)
    with serving(family, page_tokens=4, **tiers()) as client:
        client.ask(prompt, 2)
        forget_device(client)
        with monkeypatch.context() as broken:
            break_loads(client, broken)
            outcome = client.ask(prompt, 3)
        assert_greedy(family, [prompt], [outcome], 3)
        assert outcome.reuse is not None
        assert (outcome.reused, outcome.reuse.host_tokens) == (0, 0)
        forget_device(client)
        assert client.ask(prompt, 3).reused == replay_boundary(prompt, client.engine.info.page_tokens)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
def test_a_backup_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = random_prompt(1, 75)
    with serving("qwen3_5", **tiers()) as client:
        pool = client.engine.cache.pools["full"]
        with monkeypatch.context() as broken:
            broken.setattr(pool, "export_rows", lambda *_: 1 / 0)
            assert_greedy("qwen3_5", [prompt], [client.ask(prompt, 3)], 3)
            forget_device(client)
        assert_greedy("qwen3_5", [prompt], [client.ask(prompt, 3)], 3)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("end", ["abort", "finish"])
def test_a_request_that_ends_while_it_loads_leaves_nothing(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, other = random_prompt(1, 75), random_prompt(2, 20)
    with serving("inkling", **tiers()) as client:
        client.ask(prompt, 2)
        forget_device(client)
        begun, let_go = threading.Event(), threading.Event()

        def slowly(copy: Any) -> Any:
            def slow(*given: Any) -> None:
                begun.set()
                let_go.wait(PATIENCE_S)
                copy(*given)

            return slow

        patch_loads(client, monkeypatch, slowly)
        pending = client.submit(prompt, 2)
        assert begun.wait(PATIENCE_S)
        assert_greedy("inkling", [other], [client.ask(other, 2)], 2)  # those behind it go on
        getattr(client.engine, end)(pending.ident)
        assert pending.wait().finish == {"abort": "abort", "finish": "stop"}[end]
        let_go.set()
        assert_greedy("inkling", [other], [client.ask(other, 2)], 2)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
def test_the_engine_closes_while_copies_wait() -> None:
    before = set(threading.enumerate())  # other tests may keep a server
    with serving("qwen3_5", **tiers()) as client:
        pending = [client.submit(random_prompt(seed, 60), 9) for seed in range(6)]
        pending[0].wait()
    assert {request.wait().finish for request in pending[1:]} <= {"abort", "length"}
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("graftline")]


# -- settings -------------------------------------------------------------------------------------------


@pytest.mark.rule("X-8")
def test_nothing_is_loaded_that_is_cheaper_to_compute() -> None:
    prompt = random_prompt(1, 75)
    slow_copies = BreakEven(prefill_s_per_token=1e-9, host_s_per_byte=1.0)
    with serving("qwen3_5", **tiers(break_even=slow_copies)) as client:
        client.ask(prompt, 2)
        forget_device(client)
        outcome = client.ask(prompt, 2)
        assert_greedy("qwen3_5", [prompt], [outcome], 2)
        assert outcome.reused == 0
        assert client.engine.info.break_even == slow_copies


@pytest.mark.rule("X-8")
def test_the_break_even_is_measured_and_the_pools_are_clean_afterwards() -> None:
    with serving("inkling", host_bytes=1 << 22) as client:
        worth = client.engine.info.break_even
        assert worth is not None
        assert 0 < worth.host_s_per_byte < worth.prefill_s_per_token
        assert worth.host_latency_s > 0
        total = sum(use.capacity * use.slot_bytes for use in client.engine.info.host_pools)
        assert (1 << 21) < total <= (1 << 22)
        prompt = random_prompt(1, 40)
        assert_greedy("inkling", [prompt], [client.ask(prompt, 3)], 3)


@pytest.mark.rule("X-8")
def test_write_policies() -> None:
    prompt = random_prompt(1, 60)

    def found(uses: int, **config: Any) -> int:
        with serving("qwen3_5", **tiers(**config)) as client:
            for _ in range(uses):
                client.ask(prompt, 2)
            if config["write_policy"] == "write_through":
                settle(client)
            client.engine.clear_cache()
            return client.ask(prompt, 2).reused

    assert found(1, write_policy="write_through") == 56
    assert found(1, write_policy="write_through", write_uses=2) == 0
    assert found(2, write_policy="write_through", write_uses=2) == 56
    assert found(3, write_policy="none") == 0


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_write_back_goes_down_when_the_device_is_short(family: str) -> None:
    prompts = [random_prompt(seed, 60) for seed in range(8)]
    slots, more = scant(family), tiers(host_ratio=16.0, write_policy="write_back")
    with serving(family, page_tokens=4, slots=slots, **more) as client:
        for _ in range(2):
            for prompt in prompts:
                assert_greedy(family, [prompt], [client.ask(prompt, 2)], 2)
        stats = client.engine.stats()
        assert stats.host_tokens > 0
        client.engine.clear_cache()


@pytest.mark.rule("X-8")
def test_settings_that_cannot_work_are_refused() -> None:
    for config, message in (
        ({"host_bytes": 1, "host_ratio": 1.0}, "both"),
        ({"host_bytes": -1}, "host_bytes"),
        ({"host_ratio": float("nan")}, "host_ratio"),
        ({"stores": ("file:/nowhere",)}, "host memory"),
        ({"write_policy": "sometimes"}, "sometimes"),
        ({"host_ratio": 1.0, "prefetch_policy": "never"}, "never"),
        ({"host_ratio": 1.0, "prefetch_timeout_s": 0}, "prefetch_timeout_s"),
    ):
        with pytest.raises(ConfigError, match=message):
            EngineConfig(**config)
    with pytest.raises(ConfigError, match="no room"), serving("llama", host_bytes=1):
        pass


# -- namespaces -----------------------------------------------------------------------------------------


@pytest.mark.rule("X-8")
@pytest.mark.rule("K-3")
def test_tenants_and_adapters_never_meet_in_the_host() -> None:
    prompt = random_prompt(1, 60)
    with serving("qwen3_5", **tiers()) as client:
        everyone = ({}, {"salt": "a"}, {"salt": "b"}, {"adapter": "a"}, {"salt": "a", "adapter": "a"})
        for more in everyone:
            assert client.ask(prompt, 2, **more).reused == 0
            forget_device(client)
        for more in everyone:
            outcome = client.ask(prompt, 2, **more)
            assert outcome.reuse is not None
            assert (outcome.reused, outcome.reuse.host_tokens) == (56, 56)
        client.engine.clear_cache(Tier.HOST)
        client.engine.clear_cache()
        assert client.ask(prompt, 2).reused == 0
