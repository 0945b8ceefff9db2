"""The object format: what is written comes back, and nothing else is ever taken for it."""

from __future__ import annotations

import struct
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.errors import ConfigError
from graftline.tiers.store.groups import GROUP_PAGES_MAX, Group
from graftline.tiers.store.objects import (
    BAD_REASONS,
    BadObjectError,
    blank,
    decode,
    encode,
    layout_digest,
    object_key,
    seal,
)
from tiers.store.support import LAYOUT, PAGE_TOKENS, path, values


def reason_of(layout, place, data) -> str:
    with pytest.raises(BadObjectError) as caught:
        decode(layout, place, data)
    assert caught.value.reason in BAD_REASONS
    return caught.value.reason


@pytest.mark.rule("B-1", "B-2")
@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 6), (2, 5), (5, 6)])
def test_what_is_written_comes_back_as_a_view(first, end):
    rows = values(end - first)
    place = path().place(first, end)
    data = encode(LAYOUT, place, rows)
    assert len(data) == LAYOUT.object_bytes(end - first)
    back = decode(LAYOUT, place, data)
    assert np.array_equal(back, rows)
    assert np.shares_memory(back, np.frombuffer(data, np.uint8))
    assert not back.flags.writeable


@pytest.mark.rule("B-1")
def test_the_bytes_are_those_of_the_page_about_the_format():
    """Written out by hand from docs/reference/store-format.md; a change here needs a new version."""
    place = path().place(2, 4)
    rows = values(2)
    text = b"k f16 2x8, v f16 2x8"
    digest = sha256(b"graftline/store/layout/" + struct.pack("<IIQ", PAGE_TOKENS, 2, len(text)) + text)
    name = struct.pack("<HH", 1, 4) + b"full"
    key = sha256(b"graftline/store/key/" + name + digest.digest() + place.chain_key)
    head = struct.pack("<8sHHIQII", b"graftobj", 1, 4, PAGE_TOKENS, 2, 2, 0) + struct.pack("<Q", 48)
    head += key.digest() + place.parent_key + digest.digest()
    head += b"full" + bytes(4) + place.tokens.astype("<u4").tobytes()
    head += bytes(-len(head) % 64) + rows.tobytes()
    data = encode(LAYOUT, place, rows)
    assert bytes(data).hex() == (head + sha256(head).digest()).hex()


def test_rows_may_be_gathered_in_place():
    place = path().place(0, 3)
    pool = values(9)
    data, rows = blank(LAYOUT, place)
    np.take(pool, [8, 0, 3], axis=0, out=rows)
    seal(data)
    assert np.array_equal(decode(LAYOUT, place, data), pool[[8, 0, 3]])


def test_rows_of_another_shape_are_refused():
    with pytest.raises(ConfigError, match="shape"):
        encode(LAYOUT, path().place(0, 3), values(2))


@pytest.mark.rule("B-2")
def test_a_flipped_bit_anywhere_is_found():
    place = path().place(2, 4)
    data = bytearray(encode(LAYOUT, place, values(2)))
    reasons = set()
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        reasons.add(reason_of(LAYOUT, place, data))
        data[bit // 8] ^= 1 << bit % 8
    assert reasons == {"cut", "magic", "version", "checksum"}
    decode(LAYOUT, place, data)


@pytest.mark.rule("B-2")
def test_a_cut_or_longer_object_is_found():
    place = path().place(2, 4)
    data = bytes(encode(LAYOUT, place, values(2)))
    for length in range(len(data)):
        assert reason_of(LAYOUT, place, data[:length]) == "cut"
    assert reason_of(LAYOUT, place, data + b"\0") == "cut"


@pytest.mark.rule("B-2")
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (path().place(2, 5), "key"),
        (path(salt="other").place(2, 4), "key"),
        (path(first_token=101).place(2, 4), "key"),
        (replace(path().place(2, 4), first_page=3), "place"),
        (path().place(1, 4), "place"),
        (replace(path().place(2, 4), parent_key=bytes(32)), "place"),
        (replace(path().place(2, 4), tokens=path().place(3, 5).tokens), "tokens"),
    ],
)
def test_a_whole_object_of_something_else_is_found(other, reason):
    """Another key's object, and objects that lie about one field only: as if their writer had a fault."""
    written = encode(LAYOUT, other, values(len(other.tokens) // PAGE_TOKENS))
    assert reason_of(LAYOUT, path().place(2, 4), written) == reason


@pytest.mark.rule("B-2")
@pytest.mark.parametrize(
    "change",
    [{"component": "swa"}, {"digest": layout_digest("x", 4, 2)}, {"page_tokens": 2}, {"slot_bytes": 23}],
)
def test_an_object_of_another_layout_is_found(change):
    place = path().place(2, 4)
    other = replace(LAYOUT, **change)
    data, rows = blank(other, place)
    rows[:] = 1
    if "component" in change or "digest" in change:
        seal(data)
        assert reason_of(LAYOUT, place, data) == "key"
    data[40:72] = LAYOUT.key(place.chain_key)
    seal(data)
    assert reason_of(LAYOUT, place, data) == "layout"


@pytest.mark.rule("B-2")
def test_bytes_of_anything_else_are_no_object():
    place = path().place(2, 4)
    assert reason_of(LAYOUT, place, b"") == "cut"
    assert reason_of(LAYOUT, place, bytes(1000)) == "magic"
    data = bytearray(encode(LAYOUT, place, values(2)))
    data[8] = 2
    assert reason_of(LAYOUT, place, data) == "version"


@pytest.mark.rule("B-2")
@given(st.binary(max_size=400))
def test_random_bytes_never_pass(noise):
    place = path().place(2, 4)
    data = encode(LAYOUT, place, values(2))
    for guess in (noise, b"graftobj\x01\0" + noise, bytes(data[:136]) + noise):
        reason_of(LAYOUT, place, guess)


@pytest.mark.rule("B-1", "K-3")
def test_keys_differ_in_everything_that_matters():
    first = path().place(0, 2)
    base = (first.chain_key, "full", LAYOUT.digest)
    others = {
        object_key(path(salt="x").place(0, 2).chain_key, *base[1:]),
        object_key(path().place(0, 3).chain_key, *base[1:]),
        object_key(base[0], "swa", base[2]),
        object_key(base[0], "full", layout_digest("k f16 2x8, v f16 2x8", 4, 3)),
        object_key(base[0], "full", layout_digest("k f16 2x9, v f16 2x8", 4, 2)),
        object_key(*base, version=2),
        object_key(base[2], "full", base[0]),
    }
    assert len(others) == 7
    assert object_key(*base) not in others
    assert all(len(key) == 32 for key in others)


@pytest.mark.parametrize(
    "change",
    [{"component": ""}, {"component": "x" * 256}, {"digest": b"x"}, {"slot_bytes": 0}, {"page_tokens": 0}],
)
def test_a_layout_that_cannot_be_is_refused(change):
    with pytest.raises(ConfigError):
        replace(LAYOUT, **change)


@pytest.mark.rule("B-3")
@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 40))
def test_the_objects_of_a_range_cover_it_and_start_at_groups(group_pages, first, end):
    group = Group(group_pages)
    covered = set()
    for last in group.ends(first, end):
        start = group.first_page(last)
        assert start % group_pages == 0
        assert 0 < last - start <= group_pages
        covered |= set(range(start, last))
    assert covered >= set(range(first, end))
    assert all(page >= first // group_pages * group_pages for page in covered)


@pytest.mark.rule("B-3")
def test_groups_come_near_their_target():
    assert Group.for_slots(100 * 1024).pages == 3
    assert Group.for_slots(10**9).pages == 1
    assert Group.for_slots(1).pages == GROUP_PAGES_MAX
    assert Group.for_slots(4096, target_bytes=64 * 1024).pages == 16
    with pytest.raises(ConfigError):
        Group(0)
