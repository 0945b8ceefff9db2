"""H-7: the host has no room for what a store has, but something that is on its way will leave some."""

from __future__ import annotations

import threading

import pytest

from graftline.cache import HostConfig, StoreConfig
from graftline.cache.prefetch import Phase, Prefetch
from graftline.key import Namespace
from graftline.plan import Tier
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.memory import MemoryStore
from spec.cache_support import COMPOSITIONS, Model

FIRST, SECOND = list(range(100, 141)), list(range(300, 341))
PAGED = [name for name, rules in COMPOSITIONS.items() if any(rule.prefix_closed for rule in rules.values())]

pytestmark = pytest.mark.rule("H-7")


class Gated(MemoryStore):
    """Writes when the gate is open; tells that it was asked to."""

    def __init__(self) -> None:
        super().__init__(10**7)
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()

    def put(self, keys, values):  # type: ignore[no-untyped-def]
        self.asked.set()
        self.gate.wait()
        return super().put(keys, values)


class World:
    """A host that has places for one prompt and a little; `SECOND` is in it, and on its way to the store."""

    def __init__(self, composition: str, core: str, host_pages: int = 13) -> None:
        self.store, self.woken = Gated(), threading.Event()
        far = self.model_of(composition, core, host_pages=300)
        far.run(FIRST)
        far.cache.lower.flush()
        self.store.gate.clear()
        self.store.asked.clear()
        self.model = self.model_of(composition, core, host_pages)
        self.model.run(SECOND)
        self.model.cache.lower.copy_down()
        self.store.asked.wait()

    def model_of(self, composition: str, core: str, host_pages: int) -> Model:
        rules = COMPOSITIONS[composition]
        host = HostConfig(
            dict.fromkeys(rules, host_pages),
            store=StoreConfig(ChainStore([GuardedStore(self.store)]), object_bytes=64),
            wake=self.woken.set,
        )
        return Model(composition, page_tokens=4, slots=60, core=core, host=host)

    def waiting(self) -> Prefetch:
        """A prefetch that has found the first prompt, and no room for it."""
        prefetch = self.model.cache.prefetch(FIRST)
        assert prefetch is not None
        self.pump_until(lambda: prefetch.phase is not Phase.LOOKING_UP)
        return prefetch

    def pump_until(self, done) -> None:  # type: ignore[no-untyped-def]
        while not done():
            self.woken.wait()
            self.woken.clear()
            self.model.cache.pump()

    def end(self) -> None:
        self.store.gate.set()
        self.model.cache.lower.flush()
        self.model.assert_idle_and_whole()
        self.model.cache.close()


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


@pytest.mark.parametrize("composition", PAGED)
@pytest.mark.parametrize("pumped", [True, False])
def test_a_fetch_waits_for_the_room_that_a_write_leaves(composition: str, core: str, pumped: bool) -> None:
    world = World(composition, core)
    prefetch = world.waiting()
    assert prefetch.phase is Phase.WAITING
    host = world.model.cache.lower.host
    assert all(use.private == 0 for use in host.uses()), "it holds nothing meanwhile"
    world.store.gate.set()
    if pumped:
        world.pump_until(lambda: prefetch.done)
    else:
        prefetch.wait()
    assert (prefetch.outcome, prefetch.fetched_tokens) == ("", 40)
    load = world.model.cache.load(FIRST)
    assert load is not None
    load.wait()
    assert world.model.begin_and_abort(FIRST) == 40
    load.release()
    prefetch.release()
    assert not world.model.cache.lower.flow.dropped
    world.end()


def test_one_that_is_given_up_while_it_waits_ends_at_once(core: str) -> None:
    world = World("all", core)
    prefetch = world.waiting()
    assert prefetch.phase is Phase.WAITING
    prefetch.release()
    assert (prefetch.done, prefetch.protects, prefetch.fetched_tokens) == (True, False, 0)
    assert prefetch.reach is not None
    assert (prefetch.reach.tier, prefetch.reach.reached_tokens) == (Tier.STORE, 40)
    assert prefetch.reach.reason == "not in time"
    world.end()


def test_nobody_waits_for_room_that_will_never_be_there(core: str) -> None:
    world = World("full", core)
    world.store.asked.clear()
    small = world.model_of("full", core, host_pages=9)
    small.run(SECOND[:21])
    small.cache.lower.copy_down()
    world.store.asked.wait()
    prefetch = small.cache.prefetch(FIRST)
    assert prefetch is not None
    while not prefetch.done:
        world.woken.wait()
        world.woken.clear()
        small.cache.pump()
    assert prefetch.outcome == "no room", "the prompt is larger than the host"
    world.store.gate.set()
    small.cache.close()
    world.end()


def test_who_waits_ends_when_what_was_on_its_way_left_no_room(core: str) -> None:
    world = World("full", core)
    prefetch = world.waiting()
    assert prefetch.phase is Phase.WAITING
    taken = world.model.cache.lower.host.ledgers["full"]
    rest = taken.take(taken.free)
    holder = world.model.cache.lower.host.core
    lease = holder.lease(holder.match(Namespace(), SECOND[:40]))
    world.store.gate.set()
    world.pump_until(lambda: prefetch.done)
    assert prefetch.outcome == "no room"
    holder.release(lease)
    taken.give_back(rest)
    world.end()
