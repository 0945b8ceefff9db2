"""H: the host tier. Values that left the device come back, bit for bit, and only those that are needed."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from graftline.cache import HostConfig
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.plan import Tier
from graftline.tiers.worth import BreakEven
from spec.cache_support import COMPOSITIONS, Model

PROMPT = list(range(100, 141))


def with_host(
    composition: str, core: str = "python", slots: int | dict[str, int] = 60, **more: object
) -> Model:
    """A model with a host tier of 300 slots each."""
    host = HostConfig(dict.fromkeys(COMPOSITIONS[composition], 300), **more)
    return Model(composition, page_tokens=4, slots=slots, core=core, host=host)


def settle(model: Model) -> None:
    """Waits until everything that is to go down is down."""
    lower = model.cache.lower
    lower.flush()
    assert lower.pending == 0


def load(model: Model, prompt: list[int], salt: str = "") -> int:
    """Brings up what the prompt can reuse; returns the tokens that the device reuses then."""
    loading = model.cache.load(prompt, namespace=Namespace(salt=salt))
    if loading is None:
        return model.begin_and_abort(prompt, salt)
    loading.wait()
    model.cache.pump()
    try:
        return model.begin_and_abort(prompt, salt)
    finally:
        loading.release()


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


@pytest.mark.rule("H-1")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_what_left_the_device_comes_back_from_the_host(composition: str, core: str) -> None:
    """The whole prompt is reused again, and every value read is right (Model.begin verifies them)."""
    model = with_host(composition, core)
    model.run(PROMPT, range(200, 209))
    settle(model)
    turn = [*PROMPT, *range(200, 209), 7, 8, 9]
    warm = model.begin_and_abort(turn)
    model.cache.clear()
    assert model.begin_and_abort(turn) == 0
    assert load(model, turn) == warm > 0
    model.run(turn)
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("H-3")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_only_what_the_boundary_needs_is_moved(composition: str, core: str) -> None:
    """A window loads its window, a checkpoint one state, full attention what the device lacks."""
    model = with_host(composition, core)
    model.run(PROMPT)
    settle(model)
    model.cache.clear()
    boundary = load(model, PROMPT)
    assert boundary == 40
    for name, rule in model.rules.items():
        needed = boundary // 4 - rule.first_page(boundary // 4, 4)
        assert model.cache.lower.flow.pages[name, Tier.HOST, Tier.DEVICE] == needed
        assert (
            model.cache.lower.flow.bytes[name, Tier.HOST, Tier.DEVICE]
            == needed * model.pools[name].slot_bytes
        )
    model.cache.close()


@pytest.mark.rule("H-2")
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_a_random_life_never_reads_a_wrong_value(composition: str, core: str) -> None:
    """Small pools on both tiers, loads and aborts at random; Model verifies all that is read."""
    for seed in range(6):
        random_life(composition, core, seed)


def random_life(composition: str, core: str, seed: int) -> None:
    """Some dozens of requests."""
    draw = random.Random(seed)
    policy = draw.choice(["write_through", "write_back"])
    host = HostConfig(
        dict.fromkeys(COMPOSITIONS[composition], draw.choice([12, 30, 80])),
        write_policy=policy,
        write_uses=draw.choice([1, 2]),
        waiting_max=draw.choice([2, 50]),
        at_once=draw.choice([1, 4]),
    )
    model = Model(composition, page_tokens=4, slots=24, core=core, host=host)
    texts = [[draw.randrange(3) for _ in range(60)] for _ in range(3)]
    for _ in range(40):
        text = draw.choice(texts)[: draw.randrange(1, 50)]
        prompt = text + [draw.randrange(3) for _ in range(draw.randrange(4))] or [1]
        loading = model.cache.load(prompt) if draw.random() < 0.7 else None
        if loading is not None and draw.random() < 0.9:
            loading.wait()
        elif loading is not None:
            loading.release()
        request = model.begin(prompt)
        if loading is not None:
            loading.release()
        model.prefill(request, most=draw.choice([4, 9, 100]))
        model.generate(request, [draw.randrange(3) for _ in range(draw.randrange(6))])
        request.finish() if draw.random() < 0.8 else request.abort()
        if draw.random() < 0.7:
            model.cache.pump()
        if draw.random() < 0.1:
            model.cache.clear(draw.choice([Tier.DEVICE, Tier.HOST]))
        model.cache.check()
    settle(model)
    model.cache.check()
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("H-5")
def test_write_back_copies_before_the_device_evicts(core: str) -> None:
    """Nothing goes down while there is room; then what leaves the device is in the host."""
    model = with_host("full_state", core, slots=24, write_policy="write_back", at_once=2)
    model.run(PROMPT)
    model.cache.pump()
    assert not model.cache.lower.flow.pages
    for salt in "abcd":
        model.run(PROMPT, salt=salt)
    assert model.begin_and_abort(PROMPT) == 0
    assert load(model, PROMPT) == 40
    model.cache.close()


@pytest.mark.rule("H-5")
def test_write_through_waits_for_the_wanted_use(core: str) -> None:
    """With two uses, what is never asked for again is not copied."""
    model = with_host("full", core, write_uses=2)
    model.run(PROMPT)
    settle(model)
    assert not model.cache.lower.flow.pages
    model.run(PROMPT)
    settle(model)
    assert model.cache.lower.flow.pages["full", Tier.DEVICE, Tier.HOST] == 10
    model.cache.close()


@pytest.mark.rule("H-6")
def test_a_load_that_costs_more_than_computing_is_left(core: str) -> None:
    """It is counted, and the request computes."""
    worth = BreakEven(prefill_s_per_token=0.001, host_latency_s=1.0)
    model = with_host("full", core, worth=worth)
    model.run(PROMPT)
    settle(model)
    model.cache.clear()
    refused = model.cache.load(PROMPT)
    assert refused is not None
    assert (refused.done, refused.failed) == (True, "not worth it")
    assert model.cache.lower.flow.dropped[Tier.HOST, Tier.DEVICE, "not worth it"] == 1
    model.cache.close()


@pytest.mark.rule("H-4")
def test_a_copy_that_fails_costs_a_computation_and_nothing_else(core: str) -> None:
    """Both ways: the places come back, the fault is counted, the next copy works."""
    model = with_host("all", core)
    pool = model.pools["swa"]
    export, pool.export_rows = pool.export_rows, broken
    model.run(PROMPT)
    settle(model)
    dropped = model.cache.lower.flow.dropped
    assert dropped[Tier.DEVICE, Tier.HOST, "copy failed"] > 0
    pool.export_rows = export
    model.run(PROMPT)
    settle(model)
    model.cache.clear()
    imported, pool.import_rows = pool.import_rows, broken
    assert load(model, PROMPT) == 0
    assert dropped[Tier.HOST, Tier.DEVICE, "copy failed"] == 1
    model.assert_idle_and_whole()
    pool.import_rows = imported
    assert load(model, PROMPT) == 40
    model.assert_idle_and_whole()
    model.cache.close()


def broken(*_: object) -> None:
    """A copy that fails."""
    raise OSError("no")


@pytest.mark.rule("H-4")
def test_nothing_that_is_under_way_can_be_evicted(core: str) -> None:
    """While a load hangs, both tiers are flooded; the load still lands whole."""
    model = with_host("full_window", core, slots=40)
    model.run(PROMPT)
    settle(model)
    model.cache.clear()
    gate, pool = threading.Event(), model.pools["full"]
    real = pool.import_rows
    pool.import_rows = lambda *arguments: (gate.wait(), real(*arguments))
    loading = model.cache.load(PROMPT)
    for salt in "abc":
        model.run(PROMPT, salt=salt)
    assert model.cache.lower.host.clear() >= 0
    gate.set()
    loading.wait()
    assert model.begin_and_abort(PROMPT) == 40
    loading.release()
    model.assert_idle_and_whole()
    model.cache.close()


def test_namespaces_never_meet_in_the_host(core: str) -> None:
    """Equal tokens, another salt: nothing."""
    model = with_host("full", core)
    model.run(PROMPT, salt="a")
    settle(model)
    model.cache.clear()
    assert load(model, PROMPT, "b") == 0
    assert load(model, PROMPT, "a") == 40
    model.cache.close()


def test_closing_with_copies_under_way_leaves_nothing_behind(core: str) -> None:
    """What waits is given up; the device stays usable."""
    model = with_host("all", core)
    gate, pool = threading.Event(), model.pools["full"]
    real = pool.export_rows
    pool.export_rows = lambda *arguments: (gate.wait(), real(*arguments))
    model.run(PROMPT)
    model.cache.pump()
    gate.set()
    model.cache.close()
    model.cache.close()
    model.assert_idle_and_whole()
    assert model.begin_and_abort(PROMPT) == 40


def test_bad_settings_are_refused_by_name() -> None:
    """Each error names the value."""
    with pytest.raises(ConfigError, match="unknown write_policy 'often'"):
        HostConfig({"full": 3}, write_policy="often")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="write_uses is 0"):
        HostConfig({"full": 3}, write_uses=0)
    with pytest.raises(ConfigError, match="0 slots for 'swa'"):
        Model("full_window", host=HostConfig({"full": 3}))
    with pytest.raises(ConfigError, match="shape"):
        Model("full", host=HostConfig({"full": 3}, rows={"full": np.zeros((3, 5), np.uint8)}))
