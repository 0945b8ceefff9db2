"""The guard: whatever a store does, its caller has an answer or a `StoreError` in time, and it is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.memory import MemoryStore
from tiers.store.conformance import content, key
from tiers.store.faults import FaultyStore, down

KEYS = [key(i) for i in range(3)]
VALUES = [content(i, 100 + i) for i in range(3)]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def faulty():
    store = FaultyStore(MemoryStore(1 << 20))
    store.inner.put(KEYS, VALUES)
    yield store
    store.release.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(faulty, clock):
    guard = GuardedStore(faulty, GuardLimits(deadline_s=60, calls_max=3), clock)
    yield guard
    faulty.release.set()
    guard.close()


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


@pytest.mark.rule("B-9")
def test_answers_pass_through_and_are_counted(guard):
    assert guard.exists([*KEYS, key("no")]) == [True, True, True, False]
    views = guard.get([KEYS[0], key("no"), KEYS[2]], [200, 200, 102])
    assert [bytes(view) for view in views] == [VALUES[0], b"", VALUES[2]]
    assert guard.put([key(7), key(8)], [b"x" * 50, bytes(2 << 20)]) == [True, False]
    guard.remove(KEYS[:1])
    assert guard.stat().objects == 3
    figures = guard.figures()
    assert figures.calls == {"exists": 1, "get": 1, "put": 1, "remove": 1, "stat": 1}
    assert (figures.hits, figures.misses, figures.read_bytes) == (2, 1, 202)
    assert (figures.put_objects, figures.dropped_objects, figures.written_bytes) == (1, 1, 50)
    assert set(figures.seconds) == set(figures.calls)
    assert (figures.errors, figures.bad, figures.calls_under_way, figures.left_alone_s) == ({}, {}, 0, 0.0)


@pytest.mark.rule("B-9")
def test_a_hung_call_costs_its_deadline_and_no_more(guard, faulty):
    faulty.fail("get", "hang")
    assert reason_of(lambda: guard.get(KEYS, [200] * 3, deadline_s=0.05)) == "timeout"
    assert not faulty.release.is_set(), "the call still hangs"
    assert guard.exists(KEYS) == [True] * 3
    assert guard.figures().calls_under_way == 1
    assert guard.figures().errors == {("get", "timeout"): 1}


@pytest.mark.rule("B-9")
def test_a_late_answer_touches_nothing_of_the_caller(guard, faulty):
    """The call goes on long after its caller has used the memory for something else."""
    buffers = [bytearray(b"\xee" * 200) for _ in KEYS]
    faulty.fail("get", "hang")
    views = [memoryview(buffer) for buffer in buffers]
    assert reason_of(lambda: guard.get_into(KEYS, views, deadline_s=0.05)) == "timeout"
    faulty.release.set()
    assert faulty.left.acquire(timeout=60)
    assert buffers == [b"\xee" * 200] * 3
    assert guard.get_into(KEYS, views) == [100, 101, 102]


@pytest.mark.rule("B-9")
def test_hung_calls_are_bounded_and_the_next_is_refused_at_once(faulty, clock):
    guard = GuardedStore(faulty, GuardLimits(deadline_s=60, calls_max=2), clock)
    faulty.fail("exists", "hang", "hang")
    for _ in range(2):
        assert reason_of(lambda: guard.exists(KEYS, deadline_s=0.02)) == "timeout"
    assert guard.figures().calls_under_way == 2
    assert reason_of(lambda: guard.exists(KEYS)) == "busy"
    assert len(faulty.calls) == 2
    assert guard.figures().left_alone_s == 0
    faulty.release.set()
    wait_for(lambda: guard.figures().calls_under_way == 0)
    assert guard.exists(KEYS) == [True] * 3
    guard.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """A thread gives its place back just after it told that it left."""
    pause = threading.Event()
    for _ in range(2000):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


@pytest.mark.rule("B-10")
def test_a_failed_store_is_left_alone_for_twice_as_long_each_time(guard, faulty, clock):
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        faulty.fail("exists", down())
        assert reason_of(lambda: guard.exists(KEYS)) == "down"
        made = len(faulty.calls)
        assert guard.figures().left_alone_s == pause_s
        clock.now += pause_s - 0.01
        for call in (lambda: guard.exists(KEYS), lambda: guard.get(KEYS, [9] * 3), guard.clear):
            assert reason_of(call) == "down"
        assert len(faulty.calls) == made, "it must not be called during the pause"
        clock.now += 0.01
    assert guard.figures().errors["exists", "left alone"] == 7
    assert guard.exists(KEYS) == [True] * 3
    assert guard.figures().left_alone_s == 0
    faulty.fail("put", down())
    assert reason_of(lambda: guard.put(KEYS, VALUES)) == "down"
    assert guard.figures().left_alone_s == 1, "after a good answer it begins anew"


@pytest.mark.rule("B-10")
def test_one_call_at_a_time_tries_a_failed_store(guard, faulty, clock):
    faulty.fail("exists", down(), "hang")
    assert reason_of(lambda: guard.exists(KEYS)) == "down"
    clock.now += 1
    answers = []
    trial = threading.Thread(target=lambda: answers.append(guard.exists(KEYS)))
    trial.start()
    assert faulty.entered.acquire(timeout=60)
    assert reason_of(lambda: guard.exists(KEYS)) == "down"
    assert reason_of(lambda: guard.put(KEYS, VALUES)) == "down"
    faulty.release.set()
    trial.join()
    assert answers == [[True] * 3]
    assert guard.exists(KEYS) == [True] * 3


@pytest.mark.rule("B-10")
def test_a_call_over_the_guards_own_deadline_is_a_failure(faulty, clock):
    guard = GuardedStore(faulty, GuardLimits(deadline_s=0.05), clock)
    faulty.fail("exists", "hang")
    assert reason_of(lambda: guard.exists(KEYS)) == "timeout"
    assert guard.figures().left_alone_s == 1
    faulty.release.set()
    guard.close()


@pytest.mark.rule("B-10")
def test_a_caller_with_little_time_says_nothing_about_the_store_until_the_third(faulty, clock):
    guard = GuardedStore(faulty, GuardLimits(deadline_s=60), clock)
    for hangs, left_alone_s in ((2, 0), (2, 0), (3, 1)):
        faulty.fail("exists", *["hang"] * hangs)
        for _ in range(hangs):
            assert guard.figures().left_alone_s == 0
            assert reason_of(lambda: guard.exists(KEYS, deadline_s=0.02)) == "timeout"
        assert guard.figures().left_alone_s == left_alone_s
        if not left_alone_s:
            assert guard.stat().objects == 3, "a good answer: the next is the first again"
    faulty.release.set()
    guard.close()


@pytest.mark.rule("B-10")
@pytest.mark.parametrize("reason", ["full", "refused"])
def test_a_store_that_takes_no_writes_is_still_read(guard, faulty, reason):
    faulty.fail("put", down(reason))
    assert reason_of(lambda: guard.put(KEYS, VALUES)) == reason
    assert guard.exists(KEYS) == [True] * 3
    assert guard.figures().left_alone_s == 0
    assert guard.figures().errors == {("put", reason): 1}
    assert guard.figures().dropped_objects == 3


@pytest.mark.rule("B-9")
@pytest.mark.parametrize(
    "error",
    [RuntimeError("odd"), KeyError(b"x"), OSError(5, "io"), MemoryError(), SystemExit(1), ValueError()],
)
@pytest.mark.parametrize("operation", ["exists", "get", "put", "remove", "clear", "stat"])
def test_nothing_but_store_errors_comes_out(guard, faulty, clock, operation, error):
    calls = {
        "exists": lambda: guard.exists(KEYS),
        "get": lambda: guard.get(KEYS, [200] * 3),
        "put": lambda: guard.put(KEYS, VALUES),
        "remove": lambda: guard.remove(KEYS),
        "clear": guard.clear,
        "stat": guard.stat,
    }
    faulty.fail(operation, error)
    assert reason_of(calls[operation]) == "down"
    assert guard.figures().errors == {(operation, "down"): 1}
    clock.now += 1
    assert guard.exists([]) == []


@pytest.mark.rule("B-9")
def test_answers_that_cannot_be_are_not_believed(guard, faulty, clock):
    faulty.fail("get", "long")
    assert [bytes(view) for view in guard.get(KEYS, [200] * 3)] == [b""] * 3
    for operation, call in (
        ("exists", lambda: guard.exists(KEYS)),
        ("get", lambda: guard.get(KEYS, [200] * 3)),
        ("put", lambda: guard.put(KEYS, VALUES)),
    ):
        faulty.fail(operation, "short")
        assert reason_of(call) == "down"
        clock.now += 100


@pytest.mark.rule("B-9")
def test_closing_does_not_wait_for_a_store_that_hangs(faulty, clock):
    guard = GuardedStore(faulty, GuardLimits(deadline_s=0.05), clock)
    faulty.fail("close", "hang")
    guard.close()
    guard.close()
    assert reason_of(lambda: guard.exists(KEYS)) == "closed"
    assert guard.figures().errors == {("close", "timeout"): 1, ("exists", "closed"): 1}
    faulty.release.set()
    assert faulty.left.acquire(timeout=60)


def test_its_threads_end(faulty):
    before = set(threading.enumerate())
    guard = GuardedStore(faulty)
    guard.exists(KEYS)
    started = set(threading.enumerate()) - before
    assert started
    guard.close()
    for thread in started:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "limits", [{"deadline_s": 0}, {"calls_max": 0}, {"pause_s": 0}, {"pause_s": 5, "pause_s_max": 1}]
)
def test_limits_that_make_no_sense(limits):
    with pytest.raises(ConfigError):
        GuardLimits(**limits)
