"""H-9: whatever keeps values in a tier below the device, the request is told which tier, how deep and why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from graftline.cache import HostConfig, Load, Prefetch, StoreConfig
from graftline.cache.explain import as_json
from graftline.cache.history import History
from graftline.cache.shortfall import Reach, Shortfall, shortfalls, worst_fault
from graftline.cache.watch import Watch
from graftline.plan import Tier
from graftline.tiers import CopyThread
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.worth import BreakEven
from spec.cache_support import COMPOSITIONS, Model
from tiers.store.faults import FaultyStore, down

PROMPT = list(range(100, 141))
LIMIT = 40
"""Deepest boundary that the prompt may reuse, in pages of 4 tokens."""
HOST_SLOTS = 300
CALL_S = 0.05
"""Deadline of the calls that hang here."""


@dataclass
class World:
    """One cache over a host and a store that has the prompt, and what is asked of them.

    Attributes:
        faulty: the store, which misbehaves as it is told.
        model: the cache; its host and device are empty.
    """

    composition: str
    core: str
    faulty: FaultyStore = field(default_factory=lambda: FaultyStore(MemoryStore(10**7)))
    prefetch: Prefetch | None = None
    load: Load | None = None

    def __post_init__(self) -> None:
        writer = self.make()
        writer.run(PROMPT)
        writer.cache.lower.flush()
        self.faulty.inner.close = lambda: None  # the next cache uses it
        writer.cache.close()
        self.model = self.make()

    def make(self, slots: int = 60, host_slots: int = HOST_SLOTS, **more: object) -> Model:
        """A cache over the store."""
        limits = GuardLimits(deadline_s=CALL_S if more.pop("hangs", False) else 60.0)
        chain = ChainStore([GuardedStore(self.faulty, limits), *more.pop("farther", ())])
        store = StoreConfig(chain, object_bytes=1, **more.pop("store", {}))
        host = HostConfig(dict.fromkeys(COMPOSITIONS[self.composition], host_slots), store=store, **more)
        model = Model(
            self.composition,
            page_tokens=4,
            slots=slots,
            core=self.core,
            host=host,
            record_events=True,
        )
        model.cache.start_watch(Watch(History()))
        return model

    def remake(self, **more: object) -> None:
        """Another cache over the same store."""
        self.model.cache.close()
        self.model = self.make(**more)

    def fetch(self) -> None:
        """Asks the store, and waits until it has answered or was given up."""
        self.prefetch = self.model.cache.prefetch(PROMPT)
        if self.prefetch is not None:
            self.prefetch.wait()

    def bring_up(self) -> None:
        """Asks the host for what it has."""
        self.load = self.model.cache.load(PROMPT)
        if self.load is not None:
            self.load.wait()

    def fill_host(self) -> None:
        """The host has the prompt, the device nothing."""
        self.fetch()
        assert self.prefetch is not None
        assert self.prefetch.fetched_tokens == LIMIT
        self.prefetch.release()
        self.prefetch = None

    def occupy(self, model: Model, tokens: int) -> Callable[[], None]:
        """A running request takes places on the device; returns how to end it."""
        other = model.begin(list(range(1000, 1000 + tokens)), use_cache=False)
        other.grow(tokens)
        return other.abort

    def begin(self) -> tuple[Shortfall, ...]:
        """What a request is told that begins now, and in its explanation; it computes the rest."""
        below = [move.reach for move in (self.load, self.prefetch) if move is not None]
        request = self.model.begin(PROMPT, label="asked", below=below)
        told = request.shortfalls
        explanation = self.model.cache.watch.explanation("asked")
        assert explanation is not None
        assert explanation.shortfalls == told
        assert [short["reason"] for short in as_json(explanation)["shortfalls"]] == [s.reason for s in told]
        for short in told:
            assert (short.reached_tokens is None) == (short.lost_tokens is None)
        known = [short.lost_tokens for short in told if short.lost_tokens is not None]
        depths = [short.reached_tokens for short in told if short.reached_tokens is not None]
        assert sum(known) == max(depths, default=request.reused_tokens) - request.reused_tokens
        for move in (self.load, self.prefetch):
            if move is not None:
                move.release()
        self.model.prefill(request)  # reads nothing that is wrong
        request.finish()
        return told

    def dropped(self) -> set[str]:
        """Reasons that are counted, of moves towards the device."""
        return {reason for source, target, reason in self.model.cache.lower.flow.dropped if source > target}

    def end(self) -> None:
        self.faulty.release.set()
        self.faulty.faults.clear()
        self.model.assert_idle_and_whole()
        self.model.cache.close()


def host(reason: str, depth: int = LIMIT) -> tuple[Shortfall, ...]:
    return (Shortfall(Tier.HOST, depth, depth, reason),)


def store(reason: str, depth: int | None = LIMIT) -> tuple[Shortfall, ...]:
    return (Shortfall(Tier.STORE, depth, depth, reason),)


# -- between host and device ------------------------------------------------------------------------------


def not_worth_it(world: World) -> tuple[Shortfall, ...]:
    world.remake(worth=BreakEven(prefill_s_per_token=1e-3, host_latency_s=0.0))
    world.fill_host()
    world.model.cache.lower.worth = BreakEven(prefill_s_per_token=1e-3, host_latency_s=1.0)
    world.bring_up()
    return host("not worth it")


def no_room(world: World) -> tuple[Shortfall, ...]:
    world.remake(slots=14)
    world.fill_host()
    end = world.occupy(world.model, 36 if world.composition != "state" else 1)
    if world.composition == "state":
        others = [world.occupy(world.model, 1) for _ in range(13)]
        world.bring_up()
        for end_other in others:
            end_other()
    else:
        world.bring_up()
    end()
    return host("no room")


def queue_full(world: World) -> tuple[Shortfall, ...]:
    world.fill_host()
    link = world.model.cache.lower.link
    thread, link.thread = link.thread, CopyThread("graftline-full", depth=0)
    world.bring_up()
    link.thread.close()
    link.thread = thread
    return host("queue full")


def copy_failed(world: World) -> tuple[Shortfall, ...]:
    world.fill_host()
    pool = next(iter(world.model.pools.values()))
    copy, pool.import_rows = pool.import_rows, broken
    world.bring_up()
    pool.import_rows = copy
    return host("copy failed")


def broken(*_: object) -> None:
    raise OSError("no")


def the_load_is_late(world: World) -> tuple[Shortfall, ...]:
    world.fill_host()
    gate, pool = threading.Event(), next(iter(world.model.pools.values()))
    copy = pool.import_rows
    pool.import_rows = lambda *arguments: (gate.wait(), copy(*arguments))
    world.load = world.model.cache.load(PROMPT)
    assert world.load is not None
    release = world.load.release
    world.load.release = lambda: (gate.set(), release())
    return host("not in time")


HOST_CASES = (not_worth_it, no_room, queue_full, copy_failed, the_load_is_late)


# -- between store and host -------------------------------------------------------------------------------


def a_word_of_the_store(reason: str) -> Callable[[World], tuple[Shortfall, ...]]:
    def case(world: World) -> tuple[Shortfall, ...]:
        world.faulty.fail("exists", down(reason))
        world.fetch()
        return store(reason, None)

    case.__name__ = f"the_store_says_{reason}"
    return case


def the_search_is_late(world: World) -> tuple[Shortfall, ...]:
    world.faulty.fail("exists", "hang")
    world.prefetch = world.model.cache.prefetch(PROMPT)
    assert world.faulty.entered.acquire(timeout=60)
    return store("not in time", None)


def the_read_is_late(world: World) -> tuple[Shortfall, ...]:
    world.faulty.fail("get", "hang")
    world.prefetch = world.model.cache.prefetch(PROMPT)
    assert world.prefetch is not None
    world.prefetch._ticket.wait()
    world.model.cache.pump()
    assert world.faulty.entered.acquire(timeout=60)
    world.prefetch.release()
    return store("not in time")


def it_came_after_it_was_given_up(world: World) -> tuple[Shortfall, ...]:
    expected = the_read_is_late(world)
    world.faulty.release.set()
    assert world.prefetch is not None
    world.prefetch.wait()
    return expected


def the_breaker_is_open(world: World) -> tuple[Shortfall, ...]:
    world.faulty.fail("exists", down())
    world.fetch()
    world.fetch()
    return store("left alone", None)


def the_store_hangs(world: World) -> tuple[Shortfall, ...]:
    world.remake(hangs=True)
    world.faulty.fail("exists", "hang")
    world.fetch()
    return store("timeout", None)


def the_search_breaks(world: World) -> tuple[Shortfall, ...]:
    world.model.cache.lower.shelf.path = broken
    world.fetch()
    return store("failed", None)


def no_search_can_be_queued(world: World) -> tuple[Shortfall, ...]:
    world.remake(store={"queue_max": 0})
    world.fetch()
    return store("queue full", None)


def no_read_can_be_queued(world: World) -> tuple[Shortfall, ...]:
    reads = world.model.cache.lower.shelf.reads
    world.prefetch = world.model.cache.prefetch(PROMPT)
    assert world.prefetch is not None
    world.prefetch._ticket.wait()
    submit, reads.submit = reads.submit, lambda _: None
    world.prefetch.wait()
    reads.submit = submit
    return store("queue full")


def the_store_is_taken_away(world: World) -> tuple[Shortfall, ...]:
    shelf, gate = world.model.cache.lower.shelf, threading.Event()
    for _ in range(2):
        shelf.reads.submit(gate.wait)
    world.prefetch = world.model.cache.prefetch(PROMPT)
    opening = threading.Timer(0.1, gate.set)  # a read under way is waited for
    opening.start()
    world.model.cache.detach_store()
    opening.join()
    return store("closed", None)


def too_many_keys(world: World) -> tuple[Shortfall, ...]:
    world.remake(store={"keys_max": 0})
    world.fetch()
    return store("too many keys", None)


def one_store_of_two_is_down(world: World) -> tuple[Shortfall, ...]:
    world.remake(farther=[GuardedStore(MemoryStore(10**7, url="memory:far"))])
    world.faulty.fail("exists", *[down()] * 9)
    world.fetch()
    return store("down", None)


def the_fetch_is_not_worth_it(world: World) -> tuple[Shortfall, ...]:
    world.remake(worth=BreakEven(prefill_s_per_token=1e-3, store_latency_s=1.0))
    world.fetch()
    return store("not worth it")


def no_room_in_the_host(world: World) -> tuple[Shortfall, ...]:
    world.remake(host_slots=1 if world.composition != "full_window" else 9, store={})
    if world.composition == "state":
        level = world.model.cache.lower.host
        for name, ledger in level.ledgers.items():
            taken = ledger.take(ledger.free)
            world.fetch()
            level.ledgers[name].give_back(taken)
    else:
        world.fetch()
    return store("no room")


def down_in_the_middle(world: World) -> tuple[Shortfall, ...]:
    world.faulty.fail("get", down())
    world.fetch()
    return store("down")


def late_in_the_middle(world: World) -> tuple[Shortfall, ...]:
    world.remake(hangs=True)
    world.faulty.fail("get", "hang")
    world.fetch()
    return store("timeout")


def lost(world: World) -> tuple[Shortfall, ...]:
    world.faulty.choose = lambda operation: "lose" if operation == "get" else None
    world.fetch()
    return store("objects missing")


def spoiled(fault: str) -> Callable[[World], tuple[Shortfall, ...]]:
    def case(world: World) -> tuple[Shortfall, ...]:
        world.faulty.choose = lambda operation: fault if operation == "get" else None
        world.fetch()
        return store("bad objects")

    case.__name__ = f"spoiled_by_{fault}"
    return case


def lost_and_the_rest_not_worth_it(world: World) -> tuple[Shortfall, ...]:
    """The first reason is told: that kept most away."""
    world.faulty.fail("get", "lose")
    prefetch = world.prefetch = world.model.cache.prefetch(PROMPT)
    assert prefetch is not None
    prefetch._ticket.wait()
    world.model.cache.pump()
    prefetch._worth = BreakEven(prefill_s_per_token=1e-3, store_latency_s=1.0)
    prefetch.wait()
    return store("objects missing")


def it_left_again(world: World) -> tuple[Shortfall, ...]:
    world.fetch()
    assert world.prefetch is not None
    reach = world.prefetch.reach
    world.prefetch.release()
    world.model.cache.clear(Tier.HOST)
    assert world.prefetch.reach == reach == Reach(Tier.STORE, LIMIT)
    return store("left again")


STORE_CASES = (
    *map(a_word_of_the_store, ("down", "timeout", "busy", "refused", "full", "closed")),
    *(the_search_is_late, the_read_is_late, it_came_after_it_was_given_up, the_breaker_is_open),
    *(the_store_hangs, the_search_breaks, no_search_can_be_queued, no_read_can_be_queued),
    *(the_store_is_taken_away, too_many_keys, one_store_of_two_is_down, the_fetch_is_not_worth_it),
    *(no_room_in_the_host, down_in_the_middle, late_in_the_middle, lost),
    *map(spoiled, ("cut", "flip", "junk")),
    lost_and_the_rest_not_worth_it,
    it_left_again,
)
UNCOUNTED = {"not in time", "left again"}
"""What no move is given up for; the request alone is told."""


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


@contextmanager
def worlds(composition: str, core: str) -> Iterator[World]:
    world = World(composition, core)
    try:
        yield world
        world.end()
    finally:
        world.faulty.release.set()


@pytest.mark.rule("H-4", "H-9")
@pytest.mark.parametrize("composition", ["full", "full_window", "full_state", "state"])
@pytest.mark.parametrize("case", [*HOST_CASES, *STORE_CASES], ids=lambda case: case.__name__)
def test_the_request_is_told_the_reason(
    case: Callable[[World], tuple[Shortfall, ...]], composition: str, core: str
) -> None:
    """Which tier, how deep, how many tokens; the reason is counted, and nothing is left behind."""
    with worlds(composition, core) as world:
        expected = case(world)
        assert world.begin() == expected
        assert {short.reason for short in expected} - UNCOUNTED <= world.dropped()


@pytest.mark.rule("H-9")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_what_is_brought_up_as_a_whole_is_no_shortfall(composition: str, core: str) -> None:
    """Nor is a store that has nothing, a repeat on the device, or a store that need not be asked."""
    with worlds(composition, core) as world:
        world.fetch()
        world.bring_up()
        assert world.begin() == ()
        world.faulty.fail("exists", *[down()] * 9)
        world.load = world.prefetch = None
        world.fetch()
        assert (world.prefetch, world.begin()) == (None, ())
        world.faulty.faults.clear()
        for tier in (Tier.DEVICE, Tier.HOST):
            world.model.cache.clear(tier)
        world.faulty.inner.clear()
        world.fetch()
        world.bring_up()
        assert world.begin() == ()


@pytest.mark.rule("H-9")
def test_each_tier_is_told_what_it_had_beyond_those_above(core: str) -> None:
    """The device has 8 tokens, the host 20 and no copy thread, the store all and no room is left."""
    with worlds("full", core) as world:
        world.remake(host_slots=6)
        world.model.run(PROMPT[:21])
        world.model.cache.lower.flush()
        world.model.cache.clear()
        loaded = world.model.cache.load(PROMPT[:9])
        loaded.wait()
        loaded.release()
        link = world.model.cache.lower.link
        thread, link.thread = link.thread, CopyThread("graftline-full", depth=0)
        world.fetch()
        world.bring_up()
        link.thread.close()
        link.thread = thread
        assert world.begin() == (
            Shortfall(Tier.HOST, 20, 12, "queue full"),
            Shortfall(Tier.STORE, 40, 20, "no room"),
        )


@pytest.mark.rule("H-9")
def test_the_arithmetic() -> None:
    """Of what the tiers reach: what each adds to those above it, unknown depths as unknown."""
    host_reach, unknown = Reach(Tier.HOST, 20, "no room"), Reach(Tier.STORE, None, "down")
    assert shortfalls([None, unknown, host_reach], 8, 40) == (
        Shortfall(Tier.HOST, 20, 12, "no room"),
        Shortfall(Tier.STORE, None, None, "down"),
    )
    assert shortfalls([host_reach, unknown], 40, 40) == ()
    assert shortfalls([Reach(Tier.HOST, 40, "no room"), unknown], 8, 40) == (
        Shortfall(Tier.HOST, 40, 32, "no room"),
    )
    assert shortfalls([Reach(Tier.STORE, 20, "timeout")], 20, 40) == ()
    assert shortfalls([Reach(Tier.STORE, 24)], 20, 40) == (Shortfall(Tier.STORE, 24, 4, "left again"),)
    assert shortfalls([], 0, 40) == ()
    assert worst_fault({"left alone", "timeout", "zzz"}) == "timeout"
    assert worst_fault({"left alone"}) == "left alone"
    assert worst_fault(set()) == ""
