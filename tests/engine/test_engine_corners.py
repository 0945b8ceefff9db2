"""Where preemption, sessions, loads and aborts meet; the text is always the same (rule X-1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_support import (
    PATIENCE_S,
    Client,
    Pending,
    assert_greedy,
    layout_of,
    one_of_each_composition,
    patch_loads,
    random_prompt,
    replay_boundary,
    serving,
)

from graftline.cache import HostConfig, Reach, StoreConfig
from graftline.engine import load, restores
from graftline.engine.api import GenerationRequest, SamplingParams
from graftline.engine.restores import Restores
from graftline.engine.sequence import Sequence
from graftline.key import Namespace
from graftline.plan import Tier
from graftline.tiers.store.base import Buffer, Key
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.worth import BreakEven
from spec.cache_support import Model

FAMILIES = one_of_each_composition()
GROWING = [family for family in FAMILIES if any(p.name == "full" for p in layout_of(family).components)]
SHARED = random_prompt(1, 60)
SCANT = {"full": 26, "swa": 40, "chunk": 40, "state": 16}


def tiers(**more: Any) -> dict[str, Any]:
    return {"host_ratio": 20.0, "break_even": BreakEven(), "page_tokens": 4, **more}


def settle(client: Client) -> None:
    with client.engine._changed:
        client.engine.cache.lower.flush()


def to_lower_tiers(client: Client, prompts: list[list[int]], *gone: Tier) -> None:
    """Computes prompts, and takes them out of the upper tiers."""
    for prompt in prompts:
        client.ask(prompt, 1)
    settle(client)
    for tier in gone:
        client.engine.clear_cache(tier)


def only_load(client: Client) -> None:
    """Nothing goes down any more: where room is short that is waited for, and it would wait for the gate."""
    with client.engine._changed:
        lower = client.engine.cache.lower
        lower.config = replace(lower.config, write_policy="none")


class Gate:
    """Copies up to the device wait, from the first one on, until `let_go`."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self._open = threading.Event(), threading.Event()
        patch_loads(client, monkeypatch, self._slow)

    def _slow(self, copy: Any) -> Any:
        def slow(*given: Any) -> None:
            self.begun.set()
            self._open.wait(PATIENCE_S)
            copy(*given)

        return slow

    def let_go(self) -> None:
        self._open.set()


@contextmanager
def gate(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    shut = Gate(client, monkeypatch)
    try:
        yield shut
    finally:
        shut.let_go()


def submit_all(client: Client, prompts: list[list[int]], count: int, **more: Any) -> list[Pending]:
    """All are queued before the engine takes its next step."""
    with client.engine._changed:
        return [client.submit(prompt, count, **more) for prompt in prompts]


def under_way(client: Client) -> int:
    with client.engine._changed:
        return client.engine._scheduler.restores.under_way


# -- sessions ---------------------------------------------------------------------------------------------


@pytest.mark.rule("S-4")
@pytest.mark.rule("X-5")
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "inkling", "llama", "llama4"])
def test_a_preempted_request_does_not_open_its_session_again(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was closed while the request waited to begin again: that one finishes late and opens nothing."""
    prompts, closed = [random_prompt(seed, 20) for seed in range(6)], []
    with serving(family, page_tokens=4, slots=SCANT) as client:
        preempt = client.engine._scheduler._preempt

        def closing(sequence: Sequence) -> None:
            preempt(sequence)
            if client.engine.close_session(sequence.request.session_id):
                closed.append(sequence.request.session_id)

        monkeypatch.setattr(client.engine._scheduler, "_preempt", closing)
        names = [f"s{seed}" for seed in range(6)]
        with client.engine._changed:
            pending = [
                client.submit(prompt, 40, session_id=name)
                for prompt, name in zip(prompts, names, strict=True)
            ]
        assert_greedy(family, prompts, [request.wait() for request in pending], 40)
        assert closed
        assert len(set(closed)) == len(closed), "none was open again"
        assert client.engine.stats().sessions == len(names) - len(closed)
        assert [name for name in names if client.engine.close_session(name)] == [
            name for name in names if name not in closed
        ]
        client.assert_idle_and_whole()


@pytest.mark.rule("S-1")
@pytest.mark.rule("X-5")
def test_a_preempted_request_keeps_its_session_that_is_open() -> None:
    prompts = [random_prompt(seed, 20) for seed in range(6)]
    with serving("qwen3_5", page_tokens=4, slots=SCANT) as client:
        with client.engine._changed:
            pending = [client.submit(p, 40, session_id=f"s{i}") for i, p in enumerate(prompts)]
        assert_greedy("qwen3_5", prompts, [request.wait() for request in pending], 40)
        assert client.engine.stats().preemptions > 0
        assert client.engine.stats().sessions == 6
        client.assert_idle_and_whole()


# -- preemption and loads ---------------------------------------------------------------------------------


@pytest.mark.rule("X-5")
@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", GROWING)
def test_a_preemption_in_the_middle_of_a_load(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that run want more room than a load has left them: the newer one waits, the load lands whole."""
    others = [random_prompt(seed, 20) for seed in (2, 3)]
    page = max(4, layout_of(family).page_multiple)
    slots = {"full": 60 // page + 2 * (20 // page) + 8, "swa": 200, "chunk": 200, "state": 16}
    with serving(family, slots=slots, max_running=4, **tiers(page_tokens=page)) as client:
        to_lower_tiers(client, [SHARED], Tier.DEVICE)
        only_load(client)
        loads, preempted = [], threading.Event()
        preempt = client.engine._scheduler._preempt

        def watching(sequence: Sequence) -> None:
            loads.append(under_way(client))
            preempt(sequence)
            preempted.set()

        monkeypatch.setattr(client.engine._scheduler, "_preempt", watching)
        with gate(client, monkeypatch) as shut:
            pending = submit_all(client, [*others, SHARED], 44)
            assert shut.begun.wait(PATIENCE_S)
            assert preempted.wait(PATIENCE_S)
            shut.let_go()
            outcomes = [request.wait() for request in pending]
        assert_greedy(family, others, outcomes[:2], 44)
        assert_greedy(family, [SHARED], outcomes[2:], 44)
        assert loads[0] == 1, "the load was on its way"
        assert outcomes[2].reused == replay_boundary(SHARED, page)
        settle(client)
        client.assert_idle_and_whole()


@pytest.mark.rule("X-8")
@pytest.mark.parametrize("at_once", [restores.LOADS_AT_ONCE, 3])
@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_three_loads_of_which_one_is_given_up(
    family: str, gone: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, the second or the third is aborted while it loads, or waits for its turn to load."""
    monkeypatch.setattr(restores, "LOADS_AT_ONCE", at_once)
    prompts = [random_prompt(seed, 60) for seed in (11, 12, 13)]
    with serving(family, **tiers()) as client:
        to_lower_tiers(client, prompts, Tier.DEVICE)
        with gate(client, monkeypatch) as shut:
            pending = submit_all(client, prompts, 3)
            assert shut.begun.wait(PATIENCE_S)
            assert under_way(client) == at_once
            client.engine.abort(pending[gone].ident)
            assert pending[gone].wait().finish == "abort"
            shut.let_go()
            for number in {0, 1, 2} - {gone}:
                outcome = pending[number].wait()
                assert_greedy(family, [prompts[number]], [outcome], 3)
                assert outcome.reused == replay_boundary(prompts[number], client.engine.info.page_tokens)
                assert outcome.reuse is not None
                assert outcome.reuse.shortfalls == ()
        settle(client)
        client.assert_idle_and_whole()


# -- coalescing and loads ---------------------------------------------------------------------------------


@pytest.mark.rule("X-7")
@pytest.mark.rule("X-8")
@pytest.mark.parametrize("end", ["abort", "finish"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_of_two_ends_while_their_prefix_is_loaded(
    family: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waited for the load of the first; it goes on by itself."""
    prompts = [SHARED + random_prompt(seed, 15) for seed in (21, 22)]
    with serving(family, **tiers()) as client:
        to_lower_tiers(client, [[*SHARED, 2]], Tier.DEVICE)
        depth = len(SHARED) // client.engine.info.page_tokens * client.engine.info.page_tokens
        with gate(client, monkeypatch) as shut:
            first, second = submit_all(client, prompts, 3)
            assert shut.begun.wait(PATIENCE_S)
            assert under_way(client) == 1, "the second does not load the same"
            getattr(client.engine, end)(first.ident)
            assert first.wait().finish == {"abort": "abort", "finish": "stop"}[end]
            shut.let_go()
            outcome = second.wait()
        assert_greedy(family, prompts[1:], [outcome], 3)
        assert outcome.reused == depth
        settle(client)
        client.assert_idle_and_whole()


class Hung(MemoryStore):
    """Its reads, and its writes when told so, wait for the gate once it is shut."""

    def __init__(self) -> None:
        super().__init__(10**8)
        self.open, self.asked = threading.Event(), threading.Event()
        self.writes_too = False
        self.open.set()

    def get_into(self, keys: list[Key], buffers: list[memoryview]) -> list[int]:
        self.asked.set()
        self.open.wait(PATIENCE_S)
        return super().get_into(keys, buffers)

    def put(self, keys: list[Key], values: list[Buffer]) -> list[bool]:
        if self.writes_too:
            self.asked.set()
            self.open.wait(PATIENCE_S)
        return super().put(keys, values)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    """The store of the engines of a test."""
    made = Hung()
    monkeypatch.setattr(load, "open_stores", lambda _: ChainStore([GuardedStore(made)]))
    yield made
    made.open.set()


@pytest.mark.rule("X-7")
@pytest.mark.rule("X-8")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_first_of_two_ends_while_their_prefix_is_fetched(family: str, hung: Hung) -> None:
    """The second was not asked for, as the first fetches most of its prompt; then it is."""
    prompts = [SHARED + random_prompt(seed, 15) for seed in (21, 22)]
    with serving(family, **tiers(stores=("memory:",), prefetch_policy="wait")) as client:
        to_lower_tiers(client, [[*SHARED, 2]], Tier.DEVICE, Tier.HOST)
        depth = len(SHARED) // client.engine.info.page_tokens * client.engine.info.page_tokens
        hung.open.clear()
        hung.asked.clear()
        first, second = submit_all(client, prompts, 3)
        assert hung.asked.wait(PATIENCE_S)
        client.engine.abort(first.ident)
        assert first.wait().finish == "abort"
        hung.open.set()
        outcome = second.wait()
        assert_greedy(family, prompts[1:], [outcome], 3)
        assert outcome.reused == depth
        settle(client)
        client.assert_idle_and_whole()


# -- closing ----------------------------------------------------------------------------------------------


@pytest.mark.rule("X-9")
@pytest.mark.parametrize("hurried_first", [False, True])
def test_closing_in_a_hurry_waits_for_no_store(
    hurried_first: bool, hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    """A write hangs; closing would wait for it. Told to hurry it ends, and says what was not written."""
    with serving("qwen3_5", **tiers(stores=("memory:",), drain_s=PATIENCE_S)) as client:
        hung.open.clear()
        hung.writes_too = True
        outcome = client.ask(SHARED, 3)
        assert_greedy("qwen3_5", [SHARED], [outcome], 3)
        assert hung.asked.wait(PATIENCE_S)
        if hurried_first:
            client.engine.hurry()
            assert client.engine.close() > 0
        else:
            unwritten: list[int] = []
            closing = threading.Thread(target=lambda: unwritten.append(client.engine.close()))
            closing.start()
            closing.join(0.3)
            assert closing.is_alive(), "it waits for the store"
            client.engine.hurry()
            closing.join(PATIENCE_S)
            assert unwritten
            assert unwritten[0] > 0
        assert "closing was cut short" in caplog.text
        assert f"{client.engine.close()} boundaries" in caplog.text


@pytest.mark.rule("X-9")
def test_closing_says_what_did_not_reach_the_store_in_time(
    hung: Hung, caplog: pytest.LogCaptureFixture
) -> None:
    with serving("qwen3_5", **tiers(stores=("memory:",), drain_s=0.05)) as client:
        hung.writes_too = True
        hung.open.clear()
        client.ask(SHARED, 3)
        assert hung.asked.wait(PATIENCE_S)
        letting_go = threading.Timer(1.0, hung.open.set)  # the write under way is waited for
        letting_go.start()
        assert client.engine.close() > 0
        letting_go.join()
    assert "0.05 s were not enough" in caplog.text


def test_closing_with_everything_written_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving("qwen3_5", **tiers(stores=(f"file:{tmp_path}/store",))) as client:
        client.ask(SHARED, 3)
        assert client.engine.close() == 0
    assert "stores" not in caplog.text


@pytest.mark.rule("H-9")
@pytest.mark.rule("X-8")
def test_what_came_late_to_the_host_is_loaded_by_a_request_that_still_waits() -> None:
    """It lost its patience with the store, then found no room; meanwhile the store has delivered."""
    prompt, store = list(range(100, 141)), Hung()

    def model() -> Model:
        config = StoreConfig(ChainStore([GuardedStore(store)]), object_bytes=64)
        return Model("full_state", slots=60, host=HostConfig({"full": 300, "state": 300}, store=config))

    writer = model()
    writer.run(prompt)
    writer.cache.lower.flush()
    reader = model()
    waiting = Restores(reader.cache)
    request = GenerationRequest(np.array(prompt, np.uint32), SamplingParams())
    sequence = Sequence(1, request, lambda _: None, 1)
    store.open.clear()
    store.asked.clear()
    waiting.queue(sequence, Namespace(), 0.0)
    waiting.pump()
    restore = waiting._restores[1]
    restore.prefetch._ticket.wait()
    reader.cache.pump()
    assert store.asked.wait(PATIENCE_S)
    assert waiting.ready(sequence, alone=False), "it would begin now, if there were room"
    assert waiting.reaches(sequence) == (None, Reach(Tier.STORE, 40, "not in time"))
    store.open.set()
    restore.prefetch.wait()
    waiting.ready(sequence, alone=False)
    assert restore.load is not None
    restore.load.wait()
    cached = reader.begin(prompt, below=waiting.reaches(sequence))
    assert (cached.reused_tokens, cached.shortfalls) == (40, ())
    waiting.begun(sequence, 40)
    cached.abort()
    reader.assert_idle_and_whole()
