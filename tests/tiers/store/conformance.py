"""What every store must do. A backend's tests subclass `StoreConformance` and give the fixture `store`.

class TestMine(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path):
        store = open_store(...)      # empty
        yield store
        store.close()

    def reopen(self, store): ...     # only if objects outlive their process
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from graftline.tiers.store.base import Store, StoreError
from graftline.tiers.store.objects import decode, encode
from tiers.store.support import LAYOUT, path, values


def key(name: object) -> bytes:
    return hashlib.sha256(repr(name).encode()).digest()


def content(name: object, size: int) -> bytes:
    seed = int.from_bytes(key(name)[:8], "little")
    return np.random.default_rng(seed).bytes(size)


def read(store: Store, keys: Sequence[bytes], size: int = 4096) -> list[bytes]:
    """Objects as bytes, empty for missing ones."""
    buffers = [bytearray(size) for _ in keys]
    filled = store.get_into(keys, [memoryview(buffer) for buffer in buffers])
    assert len(filled) == len(keys)
    return [bytes(buffer[:n]) for buffer, n in zip(buffers, filled, strict=True)]


class StoreConformance:
    """One suite for all backends."""

    object_bytes_max = 8 << 20

    def reopen(self, store: Store) -> Store | None:
        """Another opening of what `store` wrote, or None where that is gone with it."""
        return None

    def test_what_was_never_put_is_missing(self, store):
        keys = [key(i) for i in range(3)]
        assert store.exists(keys) == [False] * 3
        assert read(store, keys) == [b""] * 3
        store.remove(keys)

    @pytest.mark.parametrize("size", [1, 31, 4096, 65537, 1 << 20])
    def test_an_object_comes_back(self, store, size):
        value = content("one", size)
        assert store.put([key(1)], [value]) == [True]
        assert store.exists([key(1), key(2)]) == [True, False]
        assert read(store, [key(1)], size) == [value]

    def test_a_large_object_comes_back(self, store):
        value = content("large", self.object_bytes_max)
        assert store.put([key(1)], [value]) == [True]
        assert read(store, [key(1)], len(value)) == [value]

    def test_values_may_be_any_kind_of_memory(self, store):
        plain = content("kinds", 1000)
        rows = np.frombuffer(plain, np.uint8).reshape(10, 100)
        kinds = [plain, bytearray(plain), memoryview(plain), memoryview(bytearray(plain)), rows.data]
        keys = [key(i) for i in range(len(kinds))]
        assert store.put(keys, kinds) == [True] * len(kinds)
        assert read(store, keys) == [plain] * len(kinds)

    def test_an_object_does_not_change_with_the_memory_it_came_from(self, store):
        value = bytearray(content("mine", 500))
        before = bytes(value)
        store.put([key(1)], [value])
        value[:] = bytes(len(value))
        assert read(store, [key(1)]) == [before]

    def test_batches_keep_their_order(self, store):
        sizes = [7, 4096, 1, 300, 2048, 64]
        keys = [key(i) for i in range(len(sizes))]
        objects = [content(i, size) for i, size in enumerate(sizes)]
        assert store.put(keys, objects) == [True] * len(sizes)
        order = [4, 0, 5, 2, 1, 3, 0]
        assert read(store, [keys[i] for i in order]) == [objects[i] for i in order]

    def test_missing_ones_among_others(self, store):
        store.put([key(i) for i in (0, 2, 4)], [content(i, 100) for i in (0, 2, 4)])
        keys = [key(i) for i in range(5)]
        assert store.exists(keys) == [True, False, True, False, True]
        assert read(store, keys) == [content(i, 100) if i % 2 == 0 else b"" for i in range(5)]

    def test_a_large_batch(self, store):
        keys = [key(i) for i in range(600)]
        assert store.put(keys, [content(i, 200) for i in range(600)]) == [True] * 600
        assert store.exists(keys) == [True] * 600
        assert read(store, keys, 200) == [content(i, 200) for i in range(600)]

    def test_empty_batches(self, store):
        assert store.exists([]) == []
        assert store.get_into([], []) == []
        assert store.put([], []) == []
        store.remove([])

    def test_an_object_that_does_not_fit_is_a_miss(self, store):
        store.put([key(1), key(2)], [content(1, 100), content(2, 50)])
        assert read(store, [key(1), key(2)], 99) == [b"", content(2, 50)]

    def test_only_the_object_is_written_into_a_larger_buffer(self, store):
        store.put([key(1)], [content(1, 100)])
        buffer = bytearray(b"\xee" * 200)
        assert store.get_into([key(1)], [memoryview(buffer)]) == [100]
        assert buffer[:100] == content(1, 100)
        assert buffer[100:] == b"\xee" * 100

    def test_putting_again_leaves_it_there(self, store):
        for _ in range(3):
            assert store.put([key(1)], [content(1, 100)]) == [True]
        assert store.put([key(2), key(2)], [content(2, 100)] * 2) == [True, True]
        assert read(store, [key(1), key(2)]) == [content(1, 100), content(2, 100)]

    def test_a_removed_object_can_be_put_anew(self, store):
        store.put([key(1)], [content("damaged", 100)])
        store.remove([key(1)])
        store.put([key(1)], [content("good", 100)])
        assert read(store, [key(1)]) == [content("good", 100)]

    def test_remove_takes_what_is_named_and_nothing_else(self, store):
        keys = [key(i) for i in range(4)]
        store.put(keys, [content(i, 100) for i in range(4)])
        store.remove([keys[1], key("never there"), keys[3]])
        assert store.exists(keys) == [True, False, True, False]
        assert read(store, keys) == [content(0, 100), b"", content(2, 100), b""]

    def test_clear_takes_everything(self, store):
        keys = [key(i) for i in range(20)]
        store.put(keys, [content(i, 100) for i in range(20)])
        store.clear()
        assert store.exists(keys) == [False] * 20
        assert store.put(keys[:1], [content(0, 100)]) == [True]
        assert read(store, keys[:2]) == [content(0, 100), b""]

    def test_keys_are_bytes_of_any_value(self, store):
        keys = [bytes(32), b"\xff" * 32, b"/../" * 8, b"\n\r\0 " * 8, b"*?[]%s:{" * 4, bytes(range(32))]
        objects = [content(i, 50) for i in range(len(keys))]
        assert store.put(keys, objects) == [True] * len(keys)
        assert read(store, keys) == objects
        nearly = [k[:-1] + bytes([k[-1] ^ 1]) for k in keys]
        assert store.exists(nearly) == [False] * len(keys)

    def test_the_arguments_are_left_alone(self, store):
        keys, objects = [key(1), key(2)], [content(1, 100), content(2, 100)]
        store.put(keys, objects)
        store.exists(keys)
        read(store, keys)
        store.remove(keys)
        assert (keys, objects) == ([key(1), key(2)], [content(1, 100), content(2, 100)])

    def test_sizes_are_told_or_said_to_be_unknown(self, store):
        before = store.stat()
        store.put([key(i) for i in range(10)], [content(i, 1000) for i in range(10)])
        after = store.stat()
        if after.objects >= 0:
            assert after.objects - before.objects >= 10  # a row of stores counts each copy
        if after.stored_bytes >= 0:
            assert after.stored_bytes - before.stored_bytes >= 10_000
        assert after.capacity_bytes == -1 or after.capacity_bytes >= after.stored_bytes

    def test_many_threads_never_get_each_others_objects(self, store):
        rounds, threads = 12, 6
        wrong: list[object] = []

        def work(number: int) -> None:
            try:
                for i in range(rounds):
                    own, shared = (number, i), ("shared", i % 3)
                    store.put([key(own), key(shared)], [content(own, 5000), content(shared, 3000)])
                    got = read(store, [key(own), key(shared), key((number, i, "no"))], 5000)
                    if got != [content(own, 5000), content(shared, 3000), b""]:
                        wrong.append((number, i, [len(data) for data in got]))
                    store.exists([key((other, i)) for other in range(threads)])
            except Exception as error:  # noqa: BLE001  told by the assertion below
                wrong.append(error)

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        assert wrong == []

    def test_an_object_of_the_format_passes_through(self, store):
        place, rows = path().place(2, 5), values(3)
        data = encode(LAYOUT, place, rows)
        name = LAYOUT.key(place.chain_key)
        assert store.put([name], [data]) == [True]
        (back,) = read(store, [name], LAYOUT.object_bytes(3))
        assert np.array_equal(decode(LAYOUT, place, back), rows)

    def test_objects_outlive_the_store_that_wrote_them(self, store):
        keys = [key(i) for i in range(50)]
        store.put(keys, [content(i, 100 + i) for i in range(50)])
        store.remove(keys[40:])
        again = self.reopen(store)
        if again is None:
            return
        try:
            assert again.exists(keys) == [True] * 40 + [False] * 10
            assert read(again, keys[:40]) == [content(i, 100 + i) for i in range(40)]
        finally:
            again.close()

    def test_a_closed_store_says_so(self, store):
        store.put([key(1)], [content(1, 100)])
        store.close()
        store.close()
        calls = (
            lambda: store.exists([key(1)]),
            lambda: read(store, [key(1)]),
            lambda: store.put([key(1)], [content(1, 100)]),
            lambda: store.remove([key(1)]),
            store.clear,
        )
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            assert caught.value.reason == "closed"

    def test_the_url_shows_no_password(self, store):
        assert store.url
        assert "secret" not in store.url
