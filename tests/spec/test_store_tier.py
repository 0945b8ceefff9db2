"""H-7, H-8: the store below the host. Whatever a store does, a wrong value is never read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from graftline.cache import HostConfig, StoreConfig
from graftline.cache.gauge import TRIES_MAX
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.plan import Tier
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.worth import BreakEven
from spec.cache_support import COMPOSITIONS, Model

PROMPT = list(range(100, 141))
ANSWER = list(range(200, 209))


def chain_of(*stores: object) -> ChainStore:
    """Stores in a row, near first."""
    return ChainStore([GuardedStore(store) for store in stores])


def with_store(
    composition: str,
    store: object,
    core: str = "python",
    slots: int | dict[str, int] = 60,
    object_bytes: int = 64,
    **more: object,
) -> Model:
    """A model over a store; a group of 64 bytes is two pages."""
    config = StoreConfig(chain_of(store), object_bytes=object_bytes)
    host = HostConfig(dict.fromkeys(COMPOSITIONS[composition], 300), store=config, **more)
    return Model(composition, page_tokens=4, slots=slots, core=core, host=host)


def fetch(model: Model, prompt: list[int], salt: str = "") -> int:
    """Brings up what the prompt can reuse from the store; returns the tokens that the device reuses then."""
    namespace = Namespace(salt=salt)
    prefetch = model.cache.prefetch(prompt, namespace=namespace)
    if prefetch is not None:
        prefetch.wait()
    loading = model.cache.load(prompt, namespace=namespace)
    if loading is not None:
        loading.wait()
    reused = model.begin_and_abort(prompt, salt)
    for move in (loading, prefetch):
        if move is not None:
            move.release()
    return reused


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


@pytest.mark.rule("H-7", "H-8")
@pytest.mark.parametrize("object_bytes", [1, 64, 4096])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_another_process_reuses_what_one_computed(composition: str, core: str, object_bytes: int) -> None:
    """All of it, at every boundary that was kept: the end of the prompt, the end of the answer."""
    store = MemoryStore(10**7)
    first = with_store(composition, store, core, object_bytes=object_bytes)
    first.run(PROMPT, ANSWER)
    turn = [*PROMPT, *ANSWER, 7, 8, 9]
    warm = first.begin_and_abort(turn)
    first.cache.lower.flush()
    other = with_store(composition, store, core, object_bytes=object_bytes)
    assert fetch(other, PROMPT) == 40
    assert fetch(other, turn) == warm > 40
    other.run(turn)
    other.assert_idle_and_whole()
    third = with_store(composition, store, core, object_bytes=object_bytes)
    assert fetch(third, turn) == 52, "what the second process computed is there too"
    third.assert_idle_and_whole()


@pytest.mark.rule("H-7")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_the_tiers_complete_each_other(composition: str, core: str) -> None:
    """Some pages are on the device alone, some in the host, the rest in the store."""
    store = MemoryStore(10**7)
    first = with_store(composition, store, core)
    first.run(PROMPT, ANSWER)
    first.cache.lower.flush()
    other = with_store(composition, store, core, write_policy="none")
    other.run(PROMPT[:17])
    turn = [*PROMPT, *ANSWER, 7, 8, 9]
    reused = fetch(other, turn)
    assert reused == 48
    closed = [name for name, rule in other.rules.items() if rule.prefix_closed]
    for name in closed:
        pages = other.cache.lower.flow.pages
        assert pages[name, Tier.DEVICE, Tier.HOST] == 4
        assert pages[name, Tier.STORE, Tier.HOST] == 8
        assert pages[name, Tier.HOST, Tier.DEVICE] == 8
    other.run(turn)
    other.assert_idle_and_whole()


class Lossy(MemoryStore):
    """Says that everything is there, and has lost or spoiled what `spoils` picks."""

    def __init__(self, spoils: Callable[[int], str]) -> None:
        super().__init__(10**7)
        self._spoils = spoils
        self.reads = 0

    def get_into(self, keys, buffers):  # type: ignore[no-untyped-def]
        lengths = super().get_into(keys, buffers)
        for place, buffer in enumerate(buffers):
            spoil = self._spoils(self.reads)
            self.reads += 1
            if spoil == "lost" or not lengths[place]:
                lengths[place] = 0
            elif spoil == "cut":
                lengths[place] -= 1
            elif spoil == "flipped":
                buffer[self.reads * 37 % lengths[place]] ^= 4
            elif spoil == "down":
                raise OSError("gone")
        return lengths


@pytest.mark.rule("H-4", "H-7")
@pytest.mark.parametrize("spoil", ["lost", "cut", "flipped", "down"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_what_a_store_spoils_costs_a_computation_and_never_a_wrong_value(
    composition: str, core: str, spoil: str
) -> None:
    """The n-th read is bad, for every n: what is reused is right, and nothing is left behind."""
    for bad in range(8):
        store = Lossy(lambda read, bad=bad: spoil if read == bad else "")
        first = with_store(composition, store, core)
        first.run(PROMPT, ANSWER)
        first.cache.lower.flush()
        other = with_store(composition, store, core)
        turn = [*PROMPT, *ANSWER, 7, 8, 9]
        assert 0 <= fetch(other, turn) <= 48
        other.run(turn)
        other.assert_idle_and_whole()
        first.cache.close()
        other.cache.close()


def test_namespaces_never_meet_in_the_store(core: str) -> None:
    """Equal tokens under another salt, adapter, epoch or model: nothing."""
    store = MemoryStore(10**7)
    first = with_store("full_state", store, core)
    first.run(PROMPT, salt="a")
    first.cache.lower.flush()
    other = with_store("full_state", store, core)
    others = [Namespace(), Namespace(salt="b"), Namespace("m", salt="a"), Namespace(weight_epoch=1, salt="a")]
    for namespace in [*others, Namespace(adapter="a")]:
        prefetch = other.cache.prefetch(PROMPT, namespace=namespace)
        assert prefetch is not None
        prefetch.wait()
        assert prefetch.fetched_tokens == 0
        prefetch.release()
    assert fetch(other, PROMPT, "a") == 40


def test_another_layout_shares_nothing() -> None:
    """Equal names and tokens, other sizes of a page: nothing is taken for the other's."""
    store = MemoryStore(10**7)
    first = with_store("full", store)
    first.run(PROMPT)
    first.cache.lower.flush()
    host = HostConfig({"full": 300}, store=StoreConfig(chain_of(store), object_bytes=64))
    other = Model("full", page_tokens=8, slots=60, host=host)
    assert fetch(other, PROMPT) == 0


@pytest.mark.rule("H-6")
def test_a_fetch_that_costs_more_than_computing_is_left(core: str) -> None:
    """It is counted."""
    store = MemoryStore(10**7)
    first = with_store("full", store, core)
    first.run(PROMPT)
    first.cache.lower.flush()
    worth = BreakEven(prefill_s_per_token=0.001, store_latency_s=1.0)
    other = with_store("full", store, core, worth=worth)
    assert fetch(other, PROMPT) == 0
    assert other.cache.lower.flow.dropped[Tier.STORE, Tier.HOST, "not worth it"] == 1


def test_a_prefetch_given_up_early_leaves_nothing_behind(core: str) -> None:
    """What came later stays in the host, unprotected."""
    store = MemoryStore(10**7)
    first = with_store("all", store, core)
    first.run(PROMPT)
    first.cache.lower.flush()
    other = with_store("all", store, core)
    prefetch = other.cache.prefetch(PROMPT)
    prefetch.release()
    prefetch.wait()
    other.cache.pump()
    other.assert_idle_and_whole()


@pytest.mark.rule("H-8")
def test_what_is_in_the_store_is_not_written_again(core: str) -> None:
    """Neither by the process that wrote it nor by another one."""
    store = MemoryStore(10**7)
    first = with_store("full_state", store, core)
    first.run(PROMPT)
    first.cache.lower.flush()
    objects = store.stat().objects
    written = dict(first.cache.lower.flow.pages)
    first.run(PROMPT)
    first.cache.lower.flush()
    assert dict(first.cache.lower.flow.pages) == written
    other = with_store("full_state", store, core)
    other.run(PROMPT)
    other.cache.lower.flush()
    assert not [key for key in other.cache.lower.flow.pages if key[2] is Tier.STORE]
    assert store.stat().objects == objects


@pytest.mark.rule("H-8")
def test_a_store_comes_and_goes_at_run_time(core: str) -> None:
    """Attached, detached, attached again; without one nothing is fetched."""
    model = with_store("full", MemoryStore(10**7), core)
    model.cache.detach_store()
    assert model.cache.prefetch(PROMPT) is None
    model.run(PROMPT)
    model.cache.lower.flush()
    store = MemoryStore(10**7)
    model.cache.attach_store(StoreConfig(chain_of(store), object_bytes=64))
    model.run(PROMPT)
    model.cache.lower.flush()
    assert store.stat().objects > 0
    with pytest.raises(ConfigError, match="host tier"):
        Model("full").cache.attach_store(StoreConfig(chain_of(store)))


@pytest.mark.rule("H-2", "H-7")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_a_random_life_over_three_tiers_never_reads_a_wrong_value(composition: str, core: str) -> None:
    """Two processes over one lossy, bounded store, small pools on all tiers."""
    for seed in range(4):
        draw = random.Random(seed)
        store = Lossy(lambda _, draw=draw: draw.choice(["lost", "cut", "flipped", *[""] * 20]))
        models = [
            Model(
                composition,
                page_tokens=4,
                slots=24,
                core=core,
                host=HostConfig(
                    dict.fromkeys(COMPOSITIONS[composition], draw.choice([14, 30])),
                    store=StoreConfig(chain_of(store), object_bytes=draw.choice([1, 64])),
                ),
            )
            for _ in range(2)
        ]
        texts = [[draw.randrange(3) for _ in range(60)] for _ in range(3)]
        for _ in range(40):
            model = draw.choice(models)
            prompt = [*draw.choice(texts)[: draw.randrange(1, 50)], draw.randrange(3)]
            fetch(model, prompt)
            request = model.begin(prompt)
            model.prefill(request, most=draw.choice([4, 9, 100]))
            model.generate(request, [draw.randrange(3) for _ in range(draw.randrange(6))])
            request.finish() if draw.random() < 0.8 else request.abort()
            model.cache.pump()
            if draw.random() < 0.1:
                model.cache.clear(draw.choice([Tier.DEVICE, Tier.HOST]))
            model.cache.check()
        for model in models:
            model.assert_idle_and_whole()
            model.cache.close()


@pytest.mark.rule("H-8")
def test_what_the_store_has_lost_is_written_again(core: str) -> None:
    """It was known to be there; a look-up that does not find it tells otherwise."""
    store = MemoryStore(10**7)
    model = with_store("full", store, core)
    model.run(PROMPT)
    model.cache.lower.flush()
    objects = store.stat().objects
    store.clear()
    for tier in (Tier.DEVICE, Tier.HOST):
        model.cache.clear(tier)
    assert fetch(model, PROMPT) == 0
    model.run(PROMPT)
    model.cache.lower.flush()
    assert store.stat().objects == objects


@pytest.mark.rule("B-11", "H-8")
def test_a_store_that_came_later_gets_what_the_others_have(core: str) -> None:
    """Near and far: what is kept again is written to the one that lacks it."""
    near, far = MemoryStore(10**7), MemoryStore(10**7, url="memory:far")
    first = with_store("full", near, core)
    first.run(PROMPT)
    first.cache.lower.flush()
    host = HostConfig({"full": 300}, store=StoreConfig(chain_of(near, far), object_bytes=64))
    both = Model("full", page_tokens=4, slots=60, core=core, host=host)
    both.run(PROMPT)
    both.cache.lower.flush()
    assert far.stat().objects == near.stat().objects > 0


# -- the speed of a store ---------------------------------------------------------------------------------


class Slow(MemoryStore):
    """Each read takes a while; down while it is told so.

    Attributes:
        down: whether every call fails.
        takes_writes: whether `put` does.
        made: calls of any kind.
    """

    def __init__(self, url: str = "memory:") -> None:
        super().__init__(10**8, url)
        self.down = False
        self.takes_writes = True
        self.made = 0

    def _call(self) -> None:
        self.made += 1
        if self.down:
            raise OSError("down")

    def exists(self, keys):  # type: ignore[no-untyped-def]
        self._call()
        return super().exists(keys)

    def get_into(self, keys, buffers):  # type: ignore[no-untyped-def]
        self._call()
        threading.Event().wait(0.01)
        return super().get_into(keys, buffers)

    def put(self, keys, values):  # type: ignore[no-untyped-def]
        self._call()
        if not self.takes_writes:
            raise StoreError("refused", "read only")
        return super().put(keys, values)


UNKNOWN = BreakEven(prefill_s_per_token=1e-9, store_is_known=False)
"""Nothing that takes any time is worth it, but the time of the store is not known yet."""


def pump_until(model: Model, holds: Callable[[], bool]) -> None:
    """Lets the cache go on until something holds; each copy that ends rings."""
    for _ in range(2000):
        model.cache.pump()
        if holds():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")


def is_known(model: Model) -> bool:
    return model.cache.lower.worth.store_is_known


@pytest.mark.rule("H-6")
@pytest.mark.parametrize("takes_writes", [True, False])
def test_a_store_that_was_down_is_measured_when_it_is_back(core: str, takes_writes: bool) -> None:
    """Until then it is free; afterwards what it costs is known, and no fetch is worth that."""
    store = Slow()
    writer = with_store("full", store, core)
    writer.run(PROMPT)
    writer.cache.lower.flush()
    store.down, store.takes_writes = True, takes_writes
    limits = GuardLimits(pause_s=0.01, pause_s_max=0.01)
    config = StoreConfig(ChainStore([GuardedStore(store, limits)]), object_bytes=64)
    model = Model("full", slots=60, core=core, host=HostConfig({"full": 300}, worth=UNKNOWN, store=config))
    for _ in range(3):
        assert fetch(model, PROMPT) == 0
        model.cache.pump()
    assert not is_known(model)
    store.down = False
    pump_until(model, lambda: fetch(model, PROMPT) == 40 or is_known(model))
    pump_until(model, lambda: is_known(model))
    worth = model.cache.lower.worth
    assert worth.store_latency_s >= 0.01
    assert worth.prefill_s_per_token == UNKNOWN.prefill_s_per_token
    objects = store.stat().objects
    for tier in (Tier.DEVICE, Tier.HOST):
        model.cache.clear(tier)
    assert fetch(model, PROMPT) == 0
    assert model.cache.lower.flow.dropped[Tier.STORE, Tier.HOST, "not worth it"] == 1
    made = store.made
    for _ in range(5):
        fetch(model, PROMPT)
        model.cache.pump()
    assert store.made <= made + 5, "it is measured once: what is asked now is whether objects exist"
    assert store.stat().objects == objects, "nothing of the measuring is left"
    model.assert_idle_and_whole()


@pytest.mark.rule("H-6")
def test_measuring_that_fails_is_given_up_after_a_few_tries(core: str) -> None:
    """The store says what exists, and nothing more."""
    store = Slow()
    store.put = store.get_into = lambda *_: 1 / 0  # type: ignore[assignment, misc]
    limits = GuardLimits(pause_s=0.001, pause_s_max=0.001)
    config = StoreConfig(ChainStore([GuardedStore(store, limits)]))
    host = HostConfig({"full": 300}, "none", worth=UNKNOWN, store=config)
    model = Model("full", slots=60, core=core, host=host)
    for _ in range(60):
        fetch(model, PROMPT)
        model.cache.pump()
        model.cache.lower.shelf.submit(lambda: None).wait()  # the measuring before it has ended
        threading.Event().wait(0.003)  # and so has the store's pause
    figures = model.cache.lower.shelf.chain.figures()[0]
    assert 1 <= figures.calls["put"] <= TRIES_MAX
    assert not is_known(model)
    model.assert_idle_and_whole()


@pytest.mark.rule("H-6")
def test_a_store_that_came_later_is_measured(core: str) -> None:
    """Only when it was asked for: speeds that were given stay."""
    model = with_store("full", MemoryStore(10**8), core)
    given = model.cache.lower.worth
    slow = Slow("memory:slow")
    model.cache.lower.shelf.chain.attach(GuardedStore(slow))
    fetch(model, PROMPT)
    model.cache.pump()
    assert model.cache.lower.worth == given
    model.cache.lower.shelf.chain.detach("memory:")
    model.cache.lower.measure_store()
    assert not is_known(model)
    pump_until(model, lambda: fetch(model, PROMPT) > 0 or is_known(model))
    pump_until(model, lambda: is_known(model))
    assert model.cache.lower.worth.store_latency_s >= 0.01
    model.assert_idle_and_whole()
