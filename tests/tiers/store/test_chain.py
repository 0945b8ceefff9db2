"""Stores in a row: near first, the first good object wins, what fails is passed over."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.chain import MISS, ChainStore
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.store.open import open_store, open_stores
from tiers.store.conformance import content, key, read
from tiers.store.faults import FaultyStore, down

KEYS = [key(i) for i in range(4)]
VALUES = [content(i, 100) for i in range(4)]


def good(_index: int, _data: memoryview) -> str:
    return ""


def is_right(index: int, data: memoryview) -> str:
    return "" if bytes(data) == VALUES[index] else "checksum"


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


@pytest.fixture
def near():
    return FaultyStore(MemoryStore(1 << 20, "memory:near"))


@pytest.fixture
def far():
    return FaultyStore(MemoryStore(1 << 20, "memory:far"))


@pytest.fixture
def chain(near, far):
    chain = ChainStore([GuardedStore(near), GuardedStore(far)])
    yield chain
    chain.close()


@pytest.mark.rule("B-11")
def test_the_far_store_is_asked_only_for_what_the_near_one_lacks(chain, near, far):
    near.inner.put(KEYS[:2], VALUES[:2])
    far.inner.put(KEYS[1:3], VALUES[1:3])
    assert chain.exists(KEYS) == [True, True, True, False]
    got = chain.get_checked(KEYS, [100] * 4, is_right)
    assert [one.source for one in got] == ["memory:near", "memory:near", "memory:far", ""]
    assert [bytes(one.data) for one in got] == [*VALUES[:3], b""]
    assert chain.figures()[1].misses == 1
    near.calls.clear()
    far.calls.clear()
    chain.exists(KEYS[:2])
    chain.get_checked(KEYS[:2], [100] * 2, is_right)
    assert (near.calls, far.calls) == (["exists", "get"], [])


@pytest.mark.rule("B-11", "B-2")
def test_a_bad_object_is_removed_where_it_was_and_read_from_the_next(chain, near, far):
    near.inner.put(KEYS, [VALUES[0], content("bad", 100), content("worse", 100), VALUES[3]])
    far.inner.put(KEYS[:2], VALUES[:2])
    got = chain.get_checked(KEYS, [100] * 4, is_right)
    assert [one.source for one in got] == ["memory:near", "memory:far", "", "memory:near"]
    assert near.inner.exists(KEYS) == [True, False, False, True]
    assert chain.figures()[0].bad == {"checksum": 2}
    assert chain.figures()[1].bad == {}


@pytest.mark.rule("B-11")
def test_what_came_from_afar_is_filled_into_the_nearer(chain, near, far):
    far.inner.put(KEYS[:2], VALUES[:2])
    near.inner.put(KEYS[2:3], VALUES[2:3])
    got = chain.get_checked(KEYS, [100] * 4, good)
    assert near.inner.exists(KEYS) == [False, False, True, False], "not before it is asked for"
    chain.fill(KEYS, got)
    assert read(near.inner, KEYS, 100) == [*VALUES[:3], b""]
    assert far.inner.exists(KEYS) == [True, True, False, False], "nothing goes outwards"
    chain.fill(KEYS, [MISS] * 4)
    near.fail("put", down())
    chain.fill(KEYS, got)  # a near store that fails is no matter


@pytest.mark.rule("B-11")
def test_writes_go_to_all(chain, near, far):
    assert chain.put(KEYS, VALUES) == [True] * 4
    assert near.inner.exists(KEYS) == far.inner.exists(KEYS) == [True] * 4
    chain.remove(KEYS[:1])
    assert near.inner.exists(KEYS[:1]) == far.inner.exists(KEYS[:1]) == [False]
    chain.clear()
    assert near.inner.stat().objects == far.inner.stat().objects == 0


@pytest.mark.rule("B-11")
@pytest.mark.parametrize("broken", ["near", "far"])
def test_a_store_that_fails_is_passed_over(chain, near, far, broken):
    chain.put(KEYS, VALUES)
    bad, well = (near, far) if broken == "near" else (far, near)
    bad.choose = lambda operation: down()
    if broken == "far":
        well.inner.remove(KEYS[3:])
    expected = [True] * 4 if broken == "near" else [True, True, True, False]
    assert chain.exists(KEYS) == expected
    got = chain.get_checked(KEYS, [100] * 4, is_right)
    assert [bool(one.source) for one in got] == expected
    assert chain.put(KEYS, VALUES) == [True] * 4
    chain.remove(KEYS)
    assert well.inner.stat().objects == 0


@pytest.mark.rule("B-11")
def test_only_when_all_fail_does_a_call_fail(chain, near, far):
    near.choose = far.choose = lambda operation: down()
    assert reason_of(lambda: chain.exists(KEYS)) == "down"
    assert reason_of(lambda: chain.get_checked(KEYS, [100] * 4, good)) == "down"
    assert reason_of(lambda: chain.put(KEYS, VALUES)) == "down"
    assert reason_of(lambda: chain.remove(KEYS)) == "down"


@pytest.mark.rule("B-11")
def test_clearing_says_when_a_store_was_not_cleared(chain, near, far):
    chain.put(KEYS, VALUES)
    near.fail("clear", down())
    assert reason_of(chain.clear) == "down"
    assert far.inner.stat().objects == 0


@pytest.mark.rule("B-11", "B-9")
def test_the_time_is_for_all_stores_together(chain, near, far):
    near.fail("exists", "hang")
    assert reason_of(lambda: chain.exists(KEYS, deadline_s=0.05)) == "timeout"
    assert far.calls == [], "no time was left for it"
    near.release.set()


@pytest.mark.rule("B-11")
def test_stores_come_and_go_at_run_time(chain, near, far):
    third = GuardedStore(MemoryStore(1 << 20, "memory:third"))
    chain.attach(third)
    with pytest.raises(ConfigError, match="attached already"):
        chain.attach(GuardedStore(MemoryStore(1, "memory:third")))
    chain.put(KEYS, VALUES)
    assert chain.detach("memory:near")
    assert not chain.detach("memory:near")
    assert near.calls[-1] == "close"
    assert chain.url == "memory:far memory:third"
    assert chain.exists(KEYS) == [True] * 4
    assert chain.detach("memory:far")
    assert chain.detach("memory:third")
    assert chain.exists(KEYS) == [False] * 4
    assert chain.get_checked(KEYS, [100] * 4, good) == [MISS] * 4
    assert chain.put(KEYS, VALUES) == [False] * 4
    assert chain.stat().objects == 0
    chain.remove(KEYS)


@pytest.mark.rule("B-12")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("flie:/tmp/x", "did you mean 'file:'"),
        ("ftp://host/x", "known are"),
        ("/var/cache", "no scheme"),
        ("", "no scheme"),
        ("memory:name", "name"),
        ("memory:?size=0", "size"),
        ("memory:?sise=1", "did you mean 'size'"),
    ],
)
def test_urls_that_make_no_sense(url, message):
    with pytest.raises(ConfigError, match=message):
        open_store(url)


@pytest.mark.rule("B-12")
@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("redis://127.0.0.1:1/0", "redis", "store-redis"),
        ("s3://bucket/x", "obstore", "store-object"),
        ("mooncake://127.0.0.1:1", "mooncake", "store-mooncake"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, url, library, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=rf"pip install 'graftline\[{extra}\]'"):
        open_store(url)


@pytest.mark.rule("B-12")
def test_a_row_with_one_wrong_url_opens_nothing(tmp_path):
    with pytest.raises(ConfigError):
        open_stores([f"file:{tmp_path}/a", "nonsense:"])
    assert list((tmp_path / "a" / "tmp").iterdir()) == [], "the first was closed again"
    with pytest.raises(ConfigError, match="attached already"):
        open_stores([f"file:{tmp_path}/a", f"file:{tmp_path}/a"])
    with pytest.raises(ConfigError) as caught:
        open_store("amqp://user:secret@host")
    assert "secret" not in str(caught.value)
