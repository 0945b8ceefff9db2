"""Reading through format, guard and row: no wrong object is ever taken, and the reason is counted."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.tiers.store import reader
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.file import FileStore
from graftline.tiers.store.groups import Group
from graftline.tiers.store.guard import GuardedStore, GuardLimits
from graftline.tiers.store.lookup import Bounds, Lookup, StoredComponent
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.store.objects import ObjectLayout, Path, encode, layout_digest
from graftline.tiers.store.reader import read_objects
from tiers.store.faults import READ_FAULTS, FaultyStore, down
from tiers.store.support import PAGE_TOKENS, path

SIZES = {"full": 40, "swa": 56, "state": 300}


def component(name: str, rule, group_pages: int = 1) -> StoredComponent:
    digest = layout_digest(name, PAGE_TOKENS, group_pages)
    return StoredComponent(rule, ObjectLayout(name, digest, PAGE_TOKENS, SIZES[name]), Group(group_pages))


COMPONENTS = [component("full", Full(), 4), component("swa", Window(9)), component("state", Checkpoint())]


def row(name: str, salt: str, page: int) -> np.ndarray:
    """What one page holds; another path holds other values in the same place."""
    noise = np.random.default_rng([len(name), page, len(salt)])
    return noise.integers(0, 256, SIZES[name], dtype=np.uint8)


def store_boundary(store, text: Path, salt: str, boundary: int) -> None:
    """Writes all that a boundary needs."""
    for stored in COMPONENTS:
        for end in stored.ends(0, boundary):
            first = stored.first_page(end)
            rows = np.stack([row(stored.layout.component, salt, page) for page in range(first, end)])
            place = text.place(first, end)
            store.put([stored.layout.key(place.chain_key)], [encode(stored.layout, place, rows)])


def restore(chain: ChainStore, text: Path, salt: str) -> int:
    """As a cache would: looks, reads, forgets what was not good, looks again. The boundary reached."""
    lookup = Lookup(COMPONENTS, text, [np.zeros(len(text.keys), dtype=bool) for _ in COMPONENTS], Bounds())
    try:
        while keys := lookup.ask():
            lookup.answer(chain.exists(keys))
        while boundary := lookup.boundary_pages():
            got = list(read_objects(chain, COMPONENTS, lookup.reads(boundary)))
            have: dict[tuple[int, int], np.ndarray] = {}
            for one in got:
                if one.rows is None:
                    lookup.forget(one.read)
                    continue
                for index, values in enumerate(one.rows):
                    page = one.read.place.first_page + index
                    name = COMPONENTS[one.read.component].layout.component
                    assert np.array_equal(values, row(name, salt, page)), (name, page)
                    have[one.read.component, page] = values
            if all(one.rows is not None for one in got):
                for index, stored in enumerate(COMPONENTS):
                    for page in range(stored.rule.first_page(boundary, PAGE_TOKENS), boundary):
                        assert (index, page) in have
                return boundary
    except StoreError:
        pass
    return 0


@pytest.fixture
def faulty():
    return FaultyStore(MemoryStore(1 << 22))


@pytest.fixture
def chain(faulty):
    chain = ChainStore([GuardedStore(faulty, GuardLimits(deadline_s=60))])
    yield chain
    chain.close()


@pytest.mark.rule("B-2", "B-5")
def test_what_was_stored_is_restored_at_the_deepest_boundary(chain, faulty):
    text = path(30)
    for boundary in (7, 13, 22):
        store_boundary(chain, text, "", boundary)
    assert restore(chain, text, "") == 22
    assert chain.figures()[0].bad == {}
    assert restore(chain, path(30, salt="x"), "x") == 0, "equal tokens of another namespace"


@pytest.mark.rule("B-2")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("cut", "cut"), ("flip", "checksum"), ("swap", "key"), ("junk", "magic"), ("lose", ""), ("long", "")],
)
def test_each_way_of_being_wrong_has_its_reason(chain, faulty, fault, reason):
    """Two sessions of equal length, so that each object of one has an object of the other as large."""
    for salt in ("", "x"):
        for boundary in (6, 12):
            store_boundary(chain, path(12, salt=salt), salt, boundary)
    faulty.choose = lambda operation: fault if operation == "get" else None
    assert restore(chain, path(12), "") == 0
    figures = chain.figures()[0]
    assert set(figures.bad) == ({reason} if reason else set())
    if reason:
        assert sum(figures.bad.values()) == figures.hits > 0
    else:
        assert figures.misses > 0
    faulty.choose = lambda operation: None
    left = restore(chain, path(12), "")
    assert left == (0 if reason else 12), "bad objects were removed, so that they are written anew"
    store_boundary(chain, path(12), "", 12)
    assert restore(chain, path(12), "") == 12


@pytest.mark.rule("B-2")
@pytest.mark.parametrize("fault", ["ghost", "lose"])
def test_what_is_said_to_be_there_and_is_not_costs_a_shallower_boundary(chain, faulty, fault):
    text = path(12)
    store_boundary(chain, text, "", 5)
    if fault == "ghost":
        faulty.choose = lambda operation: "ghost" if operation == "exists" else None
    else:
        faulty.fail("put", *["lose"] * 20)
    store_boundary(chain, text, "", 9)
    if fault == "ghost":
        faulty.inner.remove([COMPONENTS[2].layout.key(text.keys[8])])
    assert restore(chain, text, "") == 5


@pytest.mark.rule("B-2", "B-9", "B-10")
@pytest.mark.parametrize("seed", range(40))
def test_a_store_that_does_everything_wrong_at_random(seed, tmp_path):
    """Every call fails in every way; two paths of equal tokens and other values, compared by `restore`."""
    draw = random.Random(seed)
    share = draw.choice([0.02, 0.1, 0.4])
    near = FaultyStore(MemoryStore(20_000, "memory:near"))
    far = FaultyStore(FileStore(tmp_path, 60_000))
    faults = {
        "get": [*READ_FAULTS, "short", down(), RuntimeError("odd")],
        "put": ["lose", "short", down(), down("full"), OSError(5, "io")],
        "exists": ["ghost", "short", down()],
        "remove": [down()],
    }

    def choose(operation: str) -> object:
        return draw.choice(faults[operation]) if draw.random() < share and operation in faults else None

    near.choose = far.choose = choose
    now = [0.0]
    limits = GuardLimits(deadline_s=60)
    chain = ChainStore([GuardedStore(store, limits, lambda: now[0]) for store in (near, far)])
    deepest = 0
    for _ in range(25):
        salt = draw.choice(["", "x"])
        text = path(12, salt=salt)
        now[0] += draw.choice([0.1, 3.0])
        with suppress(StoreError):
            store_boundary(chain, text, salt, draw.randrange(1, 13))
        deepest = max(deepest, restore(chain, text, salt))
    figures = chain.figures()
    assert deepest > 0 or share == 0.4
    assert sum(sum(one.bad.values()) + sum(one.errors.values()) for one in figures) > 0
    for store in (near, far):
        store.choose = lambda operation: None
    chain.close()


@pytest.mark.rule("B-5")
def test_reads_come_in_batches_of_bounded_bytes(chain, faulty, monkeypatch):
    text = path(30)
    store_boundary(chain, text, "", 30)
    monkeypatch.setattr(reader, "BATCH_BYTES", 1000)
    lookup = Lookup(COMPONENTS, text, [np.zeros(30, dtype=bool) for _ in COMPONENTS])
    while keys := lookup.ask():
        lookup.answer(chain.exists(keys))
    reads = lookup.reads(30)
    faulty.calls.clear()
    assert all(one.rows is not None for one in read_objects(chain, COMPONENTS, reads))
    sizes = [read.object_bytes for read in reads]
    assert faulty.calls.count("get") >= sum(sizes) / 1000
    assert faulty.calls.count("get") < len(reads)


@pytest.mark.rule("B-9")
def test_the_time_for_all_batches_is_one(chain, faulty, monkeypatch):
    """The first batch is there before the store hangs; it is not lost."""
    text = path(12)
    store_boundary(chain, text, "", 12)
    lookup = Lookup(COMPONENTS, text, [np.zeros(12, dtype=bool) for _ in COMPONENTS])
    while keys := lookup.ask():
        lookup.answer(chain.exists(keys))
    monkeypatch.setattr(reader, "BATCH_BYTES", 1)
    coming = read_objects(chain, COMPONENTS, lookup.reads(12), deadline_s=1.0)
    faulty.fail("get", None, "hang")
    assert next(coming).rows is not None
    with pytest.raises(StoreError) as caught:
        next(coming)
    assert caught.value.reason == "timeout"
    faulty.release.set()
