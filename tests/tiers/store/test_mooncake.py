"""Mooncake Store with real processes, a master, storage nodes and clients: each way in which they fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.mooncake import open_mooncake
from graftline.tiers.store.mooncake_client import Staging
from graftline.tiers.store.open import open_store, open_stores
from tiers.store.conformance import StoreConformance, content, key, read
from tiers.store.servers import free_ports, wait_until

SIZE = 200_000
KEYS = [key(i) for i in range(24)]
VALUES = [content(i, SIZE) for i in range(24)]


def reason_of(call) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


def calls(store):
    """One call of each operation."""
    return {
        "exists": lambda: store.exists(KEYS),
        "get_into": lambda: read(store, KEYS, SIZE),
        "put": lambda: store.put(KEYS, VALUES),
        "remove": lambda: store.remove(KEYS),
        "clear": store.clear,
    }


def right_or_missing(got: list[bytes]) -> int:
    """How many objects came back; each that did is the right one."""
    assert all(data in (b"", value) for data, value in zip(got, VALUES, strict=True))
    return sum(1 for data in got if data)


@pytest.fixture
def opened(request):
    """Opens stores that are closed in the end."""
    stores = []

    def make(url: str):
        stores.append(open_mooncake(url))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.mark.rule("B-6")
class TestMooncake(StoreConformance):
    @pytest.fixture
    def store(self, mooncake):
        store = open_store(mooncake.url())
        store.clear()
        yield store
        store.close()

    def reopen(self, store):
        return open_store(store.url)


@pytest.mark.rule("B-6")
class TestTwoReplicas(StoreConformance):
    @pytest.fixture
    def store(self, mooncake):
        url = mooncake.url(replicas=2, prefix="two.x", metrics=f"http://127.0.0.1:{mooncake.metrics}")
        store = open_store(url)
        store.clear()
        yield store
        store.clear() if not store._client._closed else None
        store.close()


@pytest.mark.rule("B-6")
class TestGuarded(StoreConformance):
    @pytest.fixture
    def store(self, mooncake):
        store = open_stores([mooncake.url(prefix="guarded")], GuardLimits(deadline_s=60))
        store.clear()
        yield store
        store.close()


HEAD = """
import sys
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.mooncake import open_mooncake
from tiers.store.conformance import content, key, read

def told(what):
    print(what, flush=True)

store = open_mooncake(sys.argv[1])
keys, values = [key(i) for i in range(24)], [content(i, 200_000) for i in range(24)]
"""
EXCHANGES = """
own, other = sys.argv[2:]
keys, values = [key((own, i)) for i in range(20)], [content((own, i), 300_000) for i in range(20)]
assert store.put(keys, values) == [True] * 20
told("written")
sys.stdin.readline()
theirs = [key((other, i)) for i in range(20)]
assert store.exists(theirs) == [True] * 20
assert read(store, theirs, 300_000) == [content((other, i), 300_000) for i in range(20)]
told("read")
sys.stdin.readline()
store.close()
"""
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


@contextmanager
def talking_to(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A client in a process of its own; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answer_of(process: subprocess.Popen[str], word: str = "") -> str:
    """What it says next, after a word to it."""
    if word:
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def test_two_processes_exchange_objects(mooncake):
    """Neither lends memory: what one wrote the other reads from the storage nodes."""
    url = mooncake.url(prefix="exchange")
    with talking_to(EXCHANGES, url, "a", "b") as one, talking_to(EXCHANGES, url, "b", "a") as two:
        assert [answer_of(process) for process in (one, two)] == ["written"] * 2
        assert [answer_of(process, "go") for process in (one, two)] == ["read"] * 2
        assert [process.communicate("go\n", 60)[0] for process in (one, two)] == ["", ""]
        assert [process.returncode for process in (one, two)] == [0, 0]


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


def test_a_process_can_lend_its_own_memory(own_mooncake, opened):
    own_mooncake.up(nodes=0)
    lender = opened(own_mooncake.url(segment="64MiB"))
    lender.exists(KEYS)  # connects
    wait_until(lambda: own_mooncake.lent_bytes() == 64 << 20)
    other = opened(own_mooncake.url())
    assert other.put(KEYS, VALUES) == [True] * 24
    assert read(lender, KEYS, SIZE) == VALUES
    lender.close()
    wait_until(lambda: own_mooncake.lent_bytes() == 0)
    assert read(other, KEYS, SIZE) == [b""] * 24


@pytest.mark.rule("B-22")
def test_nobody_lends_memory(own_mooncake, opened):
    store = opened(own_mooncake.up(nodes=0).url())
    assert store.exists(KEYS) == [False] * 24
    with pytest.raises(StoreError, match="lends memory") as caught:
        store.put(KEYS, VALUES)
    assert caught.value.reason == "full"
    own_mooncake.add_node()
    assert store.put(KEYS, VALUES) == [True] * 24


def test_a_full_cluster_makes_room(own_mooncake, opened):
    """What has been looked at lately has a lease; what has not makes way."""
    store = opened(own_mooncake.up(nodes=1, node_bytes=64 << 20).url())
    keys, values = [key(i) for i in range(150)], [content(i, 1 << 20) for i in range(150)]
    for k, v in zip(keys, values, strict=True):
        wait_until(lambda k=k, v=v: _put(store, k, v))
    there = store.exists(keys)
    assert 0 < sum(there) <= 64
    assert there[-1]
    got = read(store, keys, 1 << 20)
    assert all(data in (b"", v) for data, v in zip(got, values, strict=True))


def _put(store, name: bytes, value: bytes) -> bool:
    """Whether there was room."""
    try:
        return store.put([name], [value])[0]
    except StoreError as error:
        if error.reason != "full":
            raise
        return False


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
    wait_until(lambda: _answers(store))
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
    wait_until(lambda: _answers(store))
    right_or_missing(read(store, KEYS, SIZE))
    fresh = key("after")
    wait_until(lambda: _put(store, fresh, VALUES[0]))
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
    wait_until(lambda: _answers(store))
    right_or_missing(read(store, KEYS, SIZE))
    assert late.exists([key("never")]) == [False]
    guarded.close()


def _answers(store) -> bool:
    try:
        store.exists(KEYS)
    except StoreError:
        return False
    return True


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


def test_objects_larger_than_the_buffer_are_refused_one_by_one(mooncake, opened):
    store = opened(mooncake.url(buffer="4MiB", prefix="small"))  # 1 MiB a lane
    values = [content(0, 900_000), content(1, 1_200_000), content(2, 900_000)]
    assert store.put(KEYS[:3], values) == [True, False, True]
    assert read(store, KEYS[:3], 2_000_000) == [values[0], b"", values[2]]
    large = opened(mooncake.url(prefix="small"))
    assert large.put(KEYS[1:2], values[1:2]) == [True]
    assert read(store, KEYS[:3], 2_000_000) == [values[0], b"", values[2]]
    assert read(large, KEYS[:3], 2_000_000) == values
    large.clear()


@pytest.mark.rule("B-23")
def test_prefixes_are_apart(mooncake, opened):
    stores = [opened(mooncake.url(prefix=p)) for p in ("x", "x/y", "xzy", "x.y")]
    for store in stores:
        store.put(KEYS[:2], VALUES[:2])
    stores[0].clear()
    assert [store.exists(KEYS[:1]) for store in stores] == [[False], [True], [True], [True]]
    stores[3].clear()
    assert [store.exists(KEYS[:1]) for store in stores] == [[False], [True], [True], [False]]
    for store in stores:
        store.clear()


def test_figures_of_the_master(own_mooncake, opened):
    store = opened(own_mooncake.up().url(metrics=f"http://127.0.0.1:{own_mooncake.metrics}"))
    store.put(KEYS, VALUES)
    stat = store.stat()
    assert stat.objects == 24
    assert 24 * SIZE <= stat.stored_bytes < 2 * 24 * SIZE
    assert stat.capacity_bytes == 2 * 128 << 20
    own_mooncake.master.kill()
    assert reason_of(store.stat) == "down"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mooncake://127.0.0.1", "does not name a master"),
        ("mooncake://:50051", "does not name a master"),
        ("mooncake://127.0.0.1:50051/path", "does not name a master"),
        ("mooncake://127.0.0.1:50051?segmant=1GB", "did you mean 'segment'"),
        ("mooncake://127.0.0.1:50051?segment=lots", "'segment=lots' is not a size"),
        ("mooncake://127.0.0.1:50051?buffer=1kB", "less than"),
        ("mooncake://127.0.0.1:50051?replicas=0", "'replicas=0'"),
        ("mooncake://127.0.0.1:50051?metadata=nowhere", "'metadata=nowhere' is not a URL"),
        ("mooncake://127.0.0.1:50051?metrics=nowhere", "'metrics=nowhere' is not a URL"),
        ("mooncake://127.0.0.1:50051?protocol=udp", "neither tcp nor rdma"),
        ("mooncake://127.0.0.1:50051?devices=mlx5_0", "protocol=rdma only"),
        ("mooncake://127.0.0.1:50051?protocol=rdma&devices=never_0", "RDMA device"),
        ("mooncake://127.0.0.1:50051?prefix=a(b", "cannot be a prefix"),
        ("mooncake://127.0.0.1:50051?local=127.0.0.1:17001", "has a port"),
    ],
)
def test_urls_that_make_no_sense(url, says):
    with pytest.raises(ConfigError) as caught:
        open_mooncake(url)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "hint"),
    [
        (None, "graftline[store-mooncake]"),
        ("libibverbs.so.1: cannot open shared object file: No such file or directory", "libibverbs1"),
        ("libother.so.2: cannot open shared object file: No such file or directory", "cannot be loaded"),
    ],
)
def test_what_is_missing_is_named(fault, hint, monkeypatch):
    class Finder:
        """Stands in for the loader of a machine without the library, with the loader's own words."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "mooncake" and fault is None:
                raise ModuleNotFoundError("No module named 'mooncake'", name="mooncake")
            if name.startswith("mooncake.") and fault:
                raise ImportError(fault)

    for name in [name for name in sys.modules if name.partition(".")[0] == "mooncake"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(ConfigError) as caught:
        open_mooncake("mooncake://127.0.0.1:50051")
    assert hint in str(caught.value)


def test_lanes_and_waves():
    """Nothing overlaps, nothing is left out that fits, and a lane is one call's at a time."""
    staging = Staging(4 << 20)
    lane_bytes = staging.object_bytes_max
    assert lane_bytes == 1 << 20
    sizes = [1, lane_bytes, 0, lane_bytes + 1, 5000, 600_000, 600_000, 4096, 4097]
    seen: list[int] = []
    keys = [key(i) for i in range(len(sizes))]
    for wave in staging.waves(keys, sizes):
        end = 0
        for i, offset in wave:
            assert offset >= end
            end = offset + sizes[i]
            seen.append(i)
        assert end <= lane_bytes
    assert seen == [0, 1, 4, 5, 6, 7, 8]
    twice = list(staging.waves([keys[0], keys[1], keys[0], keys[0]], [10, 10, 10, 10]))
    assert [[i for i, _ in wave] for wave in twice] == [[0, 1], [2], [3]]
    with staging.lane("read", 1) as one, staging.lane("read", 1) as two, staging.lane("write", 1) as three:
        starts = sorted(lane.ctypes.data for lane in (one, two, three))
        assert starts[1] - starts[0] >= lane_bytes
        assert starts[2] - starts[1] >= lane_bytes
        assert reason_of(lambda: staging.lane("read", 0.01).__enter__()) == "timeout"
    with staging.lane("read", 0.01), staging.lane("read", 0.01):
        pass
    assert hashlib.sha256(staging.array).digest() == hashlib.sha256(bytes(4 << 20)).digest()
