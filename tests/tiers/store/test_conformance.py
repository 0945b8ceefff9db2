"""The suite of all stores, on those that need nothing else to run: plain, guarded, in a row."""

from __future__ import annotations

import pytest

from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.file import FileStore
from graftline.tiers.store.guard import GuardedStore
from graftline.tiers.store.memory import MemoryStore
from graftline.tiers.store.open import open_store, open_stores
from tiers.store.conformance import StoreConformance


@pytest.mark.rule("B-6")
class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self):
        store = MemoryStore(100 << 20)
        yield store
        store.close()


@pytest.mark.rule("B-6")
class TestFile(StoreConformance):
    sync = 0

    @pytest.fixture
    def store(self, tmp_path):
        store = open_store(f"file:{tmp_path}/store?size=100MB&sync={self.sync}")
        yield store
        store.close()

    def reopen(self, store):
        store.close()
        return open_store(store.url)


@pytest.mark.rule("B-6")
class TestFileSync(TestFile):
    sync = 1


@pytest.mark.rule("B-6")
class TestGuardedFile(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        store = GuardedStore(FileStore(tmp_path / "store"))
        yield store
        store.close()

    def reopen(self, store):
        return GuardedStore(FileStore(store._store._root))


@pytest.mark.rule("B-6")
class TestChain(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        store = open_stores(["memory:?size=50MB", f"file:{tmp_path}/store"])
        yield store
        store.close()

    def reopen(self, store):
        return ChainStore([GuardedStore(open_store(store.stores[1].url))])


@pytest.mark.rule("B-6")
class TestChainOfOne(StoreConformance):
    @pytest.fixture
    def store(self):
        store = open_stores(["memory:"])
        yield store
        store.close()
