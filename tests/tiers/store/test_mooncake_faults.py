"""Mooncake Store when processes of it die, hang, forget, or come back."""

from __future__ import annotations

import threading

import pytest

from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.mooncake import open_mooncake
from tiers.store.conformance import key, read
from tiers.store.mooncake_support import (
    KEYS,
    SIZE,
    VALUES,
    answer_of,
    answers,
    calls,
    put_one,
    reason_of,
    right_or_missing,
    talking_to,
)
from tiers.store.servers import free_ports, wait_until

HANGS = """
def count():
    got = read(store, keys, 200_000)
    assert all(data in (b"", value) for data, value in zip(got, values)), "wrong bytes"
    return sum(1 for data in got if data)

assert store.put(keys, values) == [True] * 24
told("written")
sys.stdin.readline()
told(count())
sys.stdin.readline()
count()
told("right")
store.close()
"""
CLOSES = """
from graftline.tiers.store.mooncake_client import _LEFT_OPEN

def reason():
    try:
        return store.exists(keys)
    except StoreError as error:
        return error.reason

assert store.put(keys, values) == [True] * 24
told("written")
sys.stdin.readline()
first = reason()
store.close()
told(f"{first} {reason()} {len(_LEFT_OPEN) == 1}")
"""
WRITES = """
while True:
    store.put(keys, values)
    told("round")
    store.remove(keys)
"""


@pytest.mark.rule("B-24")
def test_writers_that_are_killed(own_mooncake, opened):
    """kill -9 in the middle of writes: what they left half done is missing, and can be written again."""
    own_mooncake.master.command += ["-put_start_discard_timeout_sec=1", "-put_start_release_timeout_sec=2"]
    store = opened(own_mooncake.up().url())
    for _ in range(6):
        with talking_to(WRITES, own_mooncake.url()) as process:
            for _ in range(3):
                assert answer_of(process) == "round"
            process.kill()
            process.wait()
        right_or_missing(read(store, KEYS, SIZE))

    def all_there() -> bool:
        store.put(KEYS, VALUES)
        return read(store, KEYS, SIZE) == VALUES

    wait_until(all_there)
    assert own_mooncake.figure("master_key_count") == 24


@pytest.mark.rule("B-24")
def test_a_holder_dies(own_mooncake, opened):
    """The master says for a while that its objects exist. Reading them is a miss; the others come back."""
    store = opened(own_mooncake.up().url())
    assert store.put(KEYS, VALUES) == [True] * 24
    own_mooncake.nodes[0].kill()
    assert store.exists(KEYS) == [True] * 24  # a lie
    assert right_or_missing(read(store, KEYS, SIZE)) < 24
    wait_until(lambda: not all(store.exists(KEYS)))
    there = store.exists(KEYS)
    got = read(store, KEYS, SIZE)
    assert [bool(data) for data in got] == there
    assert 0 < right_or_missing(got) < 24
    assert store.put(KEYS, VALUES) == [True] * 24  # room on the node that is left
    assert read(store, KEYS, SIZE) == VALUES


@pytest.mark.rule("B-24")
def test_one_of_two_replicas_dies(own_mooncake, opened):
    """Reading falls back to the live replica once the master has dropped the dead process, not before."""
    store = opened(own_mooncake.up().url(replicas=2))
    assert store.put(KEYS, VALUES) == [True] * 24
    assert own_mooncake.figure("master_allocated_bytes") >= 2 * 24 * SIZE
    own_mooncake.nodes[0].kill()
    right_or_missing(read(store, KEYS, SIZE))
    wait_until(lambda: right_or_missing(read(store, KEYS, SIZE)) == 24)


@pytest.mark.rule("B-24")
def test_a_holder_hangs(own_mooncake):
    """A frozen process holds its connections: reads end by the time limit, as misses.

    Asked by a process of its own: the limit is a setting of the process.
    """
    own_mooncake.up()
    url = own_mooncake.url(timeout=1)
    with talking_to(HANGS, url) as process:
        assert answer_of(process) == "written"
        own_mooncake.nodes[0].freeze()
        assert int(answer_of(process, "go")) < 24
        own_mooncake.nodes[0].thaw()
        assert answer_of(process, "go") == "right"
        assert process.wait(60) == 0


@pytest.mark.rule("B-25")
def test_closing_while_the_master_is_frozen(own_mooncake):
    """The native client would hold up every thread; it is left open, and the process ends well."""
    with talking_to(CLOSES, own_mooncake.up().url(timeout=1)) as process:
        assert answer_of(process) == "written"
        own_mooncake.master.freeze()
        assert answer_of(process, "go") == "timeout closed True"
        own_mooncake.master.thaw()
        assert process.wait(60) == 0


@pytest.mark.rule("B-20")
def test_down_at_the_start_then_up_then_down_then_up_and_empty(own_mooncake, opened):
    store = opened(own_mooncake.url())
    for name, call in calls(store).items():
        assert reason_of(call) == "down", name
    own_mooncake.up()
    assert store.put(KEYS, VALUES) == [True] * 24
    own_mooncake.master.kill()
    for _ in range(2):
        for name, call in calls(store).items():
            assert reason_of(call) == "down", name
    own_mooncake.start_master()  # it has forgotten everything; the nodes come back to it by themselves
    wait_until(lambda: answers(store))
    assert store.exists(KEYS) == [False] * 24
    wait_until(lambda: own_mooncake.lent_bytes() == 2 * 128 << 20)
    assert read(store, KEYS, SIZE) == [b""] * 24
    assert store.put(KEYS, VALUES) == [True] * 24
    assert read(store, KEYS, SIZE) == VALUES


@pytest.mark.rule("B-24")
def test_a_master_that_remembers_by_snapshots(own_mooncake, opened, tmp_path):
    """It comes back with objects whose lease has not run out: right or missing, and writing goes on."""
    (tmp_path / "snapshots").mkdir()
    own_mooncake.master.command += [
        "-enable_snapshot=true", "-enable_snapshot_restore=true", "-snapshot_interval_seconds=1",
        "-snapshot_object_store_type=local", f"-snapshot_backup_dir={tmp_path}/snapshots",
    ]  # fmt: skip
    own_mooncake.master.env["MOONCAKE_SNAPSHOT_LOCAL_PATH"] = f"{tmp_path}/snapshots"
    store = opened(own_mooncake.up().url())
    assert store.put(KEYS, VALUES) == [True] * 24
    wait_until(lambda: any(path.is_file() for path in (tmp_path / "snapshots").rglob("*")))
    own_mooncake.master.kill()
    own_mooncake.start_master()
    wait_until(lambda: answers(store))
    right_or_missing(read(store, KEYS, SIZE))
    fresh = key("after")
    wait_until(lambda: put_one(store, fresh, VALUES[0]))
    wait_until(lambda: read(store, [fresh], SIZE) == VALUES[:1])


@pytest.mark.rule("B-24")
def test_a_frozen_master(own_mooncake, opened):
    """It takes connections and never answers: calls end by the time limit, and no new client is set up.

    A call that waits for it holds up no other thread: this one goes on, and sees the call unfinished.
    """
    store = opened(own_mooncake.up().url())
    store.put(KEYS, VALUES)
    late = opened(own_mooncake.url())
    guarded = GuardedStore(store, GuardLimits(deadline_s=0.05))
    own_mooncake.master.freeze()
    reasons: list[str] = []
    thread = threading.Thread(target=lambda: reasons.append(reason_of(lambda: store.exists(KEYS))))
    thread.start()
    assert reason_of(lambda: guarded.put(KEYS, VALUES)) == "timeout"
    assert reasons == []  # the other call, which began before, still waits
    assert reason_of(lambda: late.exists(KEYS)) == "timeout"
    thread.join()
    assert reasons == ["timeout"]
    own_mooncake.master.thaw()
    wait_until(lambda: answers(store))
    right_or_missing(read(store, KEYS, SIZE))
    assert late.exists([key("never")]) == [False]
    guarded.close()


@pytest.mark.rule("B-25")
def test_closing_waits_for_calls_and_ends_them_all(mooncake):
    """Calls of many threads while it is closed: each is right, or says `closed`; the process lives on."""
    store = open_mooncake(mooncake.url(prefix="closing"))
    store.put(KEYS, VALUES)
    begun, reasons, wrong = threading.Barrier(5), [], []

    def work() -> None:
        begun.wait()
        while True:
            try:
                got = read(store, KEYS, SIZE)
            except StoreError as error:
                reasons.append(error.reason)
                return
            if got != VALUES:
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    store.close()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert reasons == ["closed"] * 4


@pytest.mark.rule("B-25")
def test_a_setup_that_fails(mooncake, opened):
    """A native client whose setup failed would end the process when it is called: it never is."""
    greedy = opened(mooncake.url(segment="100TB", prefix="greedy"))
    for _ in range(2):
        for name, call in list(calls(greedy).items())[:2]:
            with pytest.raises(StoreError, match="could not be set up") as caught:
                call()
            assert caught.value.reason == "refused", name
    modest = opened(mooncake.url(prefix="greedy"))
    assert modest.put(KEYS, VALUES) == [True] * 24
    modest.clear()


def test_a_wrong_metadata_server(mooncake, opened):
    (port,) = free_ports(1)
    store = opened(mooncake.url(metadata=f"http://127.0.0.1:{port}/metadata"))
    assert reason_of(lambda: store.exists(KEYS)) == "down"
