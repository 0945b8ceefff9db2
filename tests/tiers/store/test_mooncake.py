"""Mooncake Store with real processes: the suite of all stores, what lies where, and what is refused."""

from __future__ import annotations

import hashlib
import sys

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import GuardLimits
from graftline.tiers.store.mooncake import open_mooncake
from graftline.tiers.store.mooncake_client import Staging
from graftline.tiers.store.open import open_store, open_stores
from tiers.store.conformance import StoreConformance, content, key, read
from tiers.store.mooncake_support import KEYS, SIZE, VALUES, answer_of, put_one, reason_of, talking_to
from tiers.store.servers import wait_until

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


def test_two_processes_exchange_objects(mooncake):
    """Neither lends memory: what one wrote the other reads from the storage nodes."""
    url = mooncake.url(prefix="exchange")
    with talking_to(EXCHANGES, url, "a", "b") as one, talking_to(EXCHANGES, url, "b", "a") as two:
        assert [answer_of(process) for process in (one, two)] == ["written"] * 2
        assert [answer_of(process, "go") for process in (one, two)] == ["read"] * 2
        assert [process.communicate("go\n", 60)[0] for process in (one, two)] == ["", ""]
        assert [process.returncode for process in (one, two)] == [0, 0]


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
        wait_until(lambda k=k, v=v: put_one(store, k, v))
    there = store.exists(keys)
    assert 0 < sum(there) <= 64
    assert there[-1]
    got = read(store, keys, 1 << 20)
    assert all(data in (b"", v) for data, v in zip(got, values, strict=True))


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
