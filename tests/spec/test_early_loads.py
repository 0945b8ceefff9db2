"""Loads that are read while they come (rule H-10), in the cache alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graftline.errors import CapacityError
from graftline.key import Namespace
from graftline.plan import Tier
from graftline.tiers import Gate, LoadBrokenError, NumpyPool, Progress, RowPart
from spec.test_host import PROMPT, settle, with_host

ORDER = [("full", "0.key"), ("full", "1.key"), ("swa", "1.key")]


@pytest.mark.rule("H-10")
def test_a_reader_waits_for_its_tensor_alone() -> None:
    progress, gate = Progress(ORDER, head=1), Gate()
    gate.add(progress)
    assert not progress.readable
    progress.advance()
    assert progress.readable
    gate.wait("full", "0.key")
    gate.wait("state", "0.conv0")  # not of this load
    read = threading.Event()
    reader = threading.Thread(target=lambda: (gate.wait("swa", "1.key"), read.set()))
    reader.start()
    progress.advance()
    gate.wait("full", "1.key")
    assert not read.is_set()
    progress.advance()
    reader.join()
    assert read.is_set()
    gate.remove(progress)
    assert not gate.is_open


@pytest.mark.rule("H-10")
def test_what_does_not_come_is_an_error_for_who_waits_and_who_asks_later() -> None:
    progress, gate, told = Progress(ORDER, head=1), Gate(), []
    gate.add(progress)
    progress.advance()

    def read() -> None:
        try:
            gate.wait("full", "1.key")
        except LoadBrokenError as error:
            told.append(error.__cause__)

    reader = threading.Thread(target=read)
    reader.start()
    fault = OSError("no")
    progress.end(fault)
    reader.join()
    read()
    assert told == [fault, fault]
    gate.wait("full", "0.key")
    assert not progress.readable


@pytest.mark.rule("H-10")
def test_a_pool_of_numpy_arrays_is_filled_array_by_array() -> None:
    pool = NumpyPool.zeros(4, {"a": (3,), "b": (2, 2)}, np.uint16)
    rows = np.arange(2 * pool.slot_bytes, dtype=np.uint8).reshape(2, -1)
    slots = np.array([3, 1], np.int32)
    for part in pool.parts:
        pool.import_part(slots, rows[:, part.columns], part)
    out = np.empty_like(rows)
    pool.export_rows(slots, out)
    assert np.array_equal(out, rows)
    assert [part.tensor for part in pool.parts] == ["a", "b"]


LAYERS = {"state": 0, "conv": 0, "full": 1, "swa": 2, "chunk": 3}
HEAD, TOTAL = 3, 5  # two states and the first layer; each pool has one tensor


class Cold:
    """A model whose prompt is in the host alone; each tensor's copy to the device waits for a permit."""

    def __init__(self, core: str, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.model = model = with_host("all", core)
        model.run(PROMPT)
        settle(model)
        model.cache.clear()
        self.permits, self.came, self.readable = threading.Semaphore(0), [], threading.Event()
        self._fails = fails
        for name, pool in model.pools.items():
            pool.parts = tuple(replace(part, layer=LAYERS[name]) for part in pool.parts)
            pool.import_part = self._slow(name, pool.import_part)  # type: ignore[method-assign]
        self.lower = model.cache.lower
        self.lower.config = replace(self.lower.config, wake=self.readable.set)

    def _slow(self, name: str, copy: Any) -> Any:
        def slow(slots: Any, values: Any, part: RowPart) -> None:
            self.permits.acquire()
            self.came.append(name)
            if self._fails(len(self.came)):
                raise OSError("no")
            copy(slots, values, part)

        return slow

    def on_device(self) -> int:
        key = np.array(PROMPT, np.uint32)
        return self.model.cache.core.match(Namespace(), key).boundary_tokens

    def opened(self) -> Any:
        """A load that was opened with the head alone on the device."""
        load = self.model.cache.load(PROMPT, by_layer=True)
        assert not load.open()
        self.permits.release(HEAD)
        assert self.readable.wait(60)
        assert load.open()
        return load


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


@pytest.mark.rule("H-10")
def test_states_come_first_then_layer_after_layer(core: str) -> None:
    cold = Cold(core)
    cold.permits.release(TOTAL)
    load = cold.model.cache.load(PROMPT, by_layer=True)
    load.wait()
    assert cold.came == ["conv", "state", "full", "swa", "chunk"]
    assert cold.model.begin_and_abort(PROMPT) == 40
    load.release()
    cold.model.assert_idle_and_whole()
    cold.model.cache.close()


@pytest.mark.rule("H-10")
def test_an_opened_load_is_the_devices_and_protected_until_its_copy_has_ended(core: str) -> None:
    """Both tiers are flooded meanwhile, and the request that it was for is gone already."""
    cold = Cold(core)
    model, load = cold.model, cold.opened()
    assert (load.done, load.moving, cold.on_device()) == (True, True, 40)
    load.release()
    assert load.protects, "its places cannot be given away yet"
    assert cold.lower.busy
    for salt in "abc":
        with pytest.raises(CapacityError), model.begin(range(300), salt) as request:
            model.prefill(request)
    assert model.cache.device.clear() == 0
    cold.lower.host.clear()
    assert cold.on_device() == 40
    cold.permits.release(TOTAL - HEAD)
    model.cache.lower.await_opened()
    assert (load.protects, load.moving, cold.lower.link.gate.is_open) == (False, False, False)
    assert model.begin_and_abort(PROMPT) == 40, "and all of it came"
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("H-10")
def test_an_opened_load_is_booked_when_its_copy_has_ended(core: str) -> None:
    cold = Cold(core)
    moved = cold.lower.flow.pages
    load = cold.opened()
    assert not any(source is Tier.HOST for _, source, _ in moved)
    cold.permits.release(TOTAL - HEAD)
    load.wait()
    assert moved["full", Tier.HOST, Tier.DEVICE] == 10
    assert moved["state", Tier.HOST, Tier.DEVICE] == 1
    load.release()
    cold.model.cache.close()


@pytest.mark.rule("H-10")
@pytest.mark.parametrize("failing", range(1, TOTAL + 1))
def test_a_copy_that_breaks_off_gives_nothing_or_is_made_again(core: str, failing: int) -> None:
    """Before it could be read it is given up; afterwards what was promised is copied once more."""
    cold = Cold(core, lambda number: number == failing)
    model, dropped = cold.model, cold.lower.flow.dropped
    if failing <= HEAD:
        cold.permits.release(HEAD)
        load = model.cache.load(PROMPT, by_layer=True)
        load.wait()
        assert (load.failed, cold.on_device()) == ("copy failed", 0)
        assert dropped[Tier.HOST, Tier.DEVICE, "copy failed"] == 1
    else:
        load = cold.opened()
        cold.permits.release(TOTAL - HEAD)
        load.wait()
        assert dropped[Tier.HOST, Tier.DEVICE, "copied again"] == 1
        assert model.begin_and_abort(PROMPT) == 40
    load.release()
    assert not cold.lower.link.gate.is_open
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("H-10")
def test_what_was_promised_and_cannot_be_copied_again_is_an_error(core: str) -> None:
    cold = Cold(core, lambda number: number == TOTAL)
    load = cold.opened()

    def broken(*_: object) -> None:
        raise OSError("not again")

    cold.model.pools["chunk"].import_rows = broken  # type: ignore[method-assign]
    cold.permits.release(TOTAL - HEAD)
    with pytest.raises(OSError, match="not again"):
        load.wait()
    with pytest.raises(LoadBrokenError):
        cold.lower.link.gate.wait("chunk", "v")
    cold.model.cache.close()


@pytest.mark.rule("H-10")
def test_closing_with_an_opened_load_leaves_nothing_behind(core: str) -> None:
    cold = Cold(core)
    load = cold.opened()
    load.release()
    cold.permits.release(TOTAL - HEAD)
    cold.model.cache.close()
    assert not load.protects
    assert cold.model.begin_and_abort(PROMPT) == 40
    cold.model.assert_idle_and_whole()


@pytest.mark.rule("H-10")
def test_pools_that_take_rows_alone_are_filled_as_a_whole(core: str) -> None:
    cold = Cold(core)
    for name, pool in cold.model.pools.items():
        cold.lower.link.device_rows[name] = Rows(pool)  # type: ignore[index]
    load = cold.model.cache.load(PROMPT, by_layer=True)
    load.wait()
    assert (cold.came, cold.on_device()) == ([], 40)
    load.release()
    cold.model.assert_idle_and_whole()
    cold.model.cache.close()


class Rows:
    """A pool without parts."""

    def __init__(self, pool: NumpyPool) -> None:
        self.slot_bytes, self.layout = pool.slot_bytes, pool.layout
        self.copy, self.export_rows, self.import_rows = pool.copy, pool.export_rows, pool.import_rows
