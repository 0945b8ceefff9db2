"""The search over existence: against brute force, with stores of random holes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.components import Checkpoint, Chunk, Full, ReuseRule, Window
from graftline.components.agree import deepest_boundary
from graftline.errors import ConfigError
from graftline.tiers.store.groups import Group
from graftline.tiers.store.lookup import Bounds, Lookup, StoredComponent
from graftline.tiers.store.objects import ObjectLayout, Path, layout_digest
from tiers.store.support import path

PAGE_TOKENS = 2


class Ledge(ReuseRule):
    """A rule of one's own: the pages since the last multiple of four."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return max(0, boundary_pages - 1) // 4 * 4


def path_of(pages: int) -> Path:
    return path(pages, page_tokens=PAGE_TOKENS)


def component(name: str, rule: ReuseRule, group_pages: int = 1) -> StoredComponent:
    digest = layout_digest("rows", PAGE_TOKENS, group_pages)
    return StoredComponent(rule, ObjectLayout(name, digest, PAGE_TOKENS, 8), Group(group_pages))


def search(lookup: Lookup, there: set[bytes]) -> list[int]:
    """Answers until there is nothing more to ask; the sizes of the questions."""
    sizes = []
    while keys := lookup.ask():
        assert len(set(keys)) == len(keys)
        sizes.append(len(keys))
        lookup.answer([key in there for key in keys])
    assert lookup.ask() == []
    return sizes


def keys_of(components, path, ends) -> set[bytes]:
    return {
        c.layout.key(path.keys[end - 1]) for c, some in zip(components, ends, strict=True) for end in some
    }


def nothing(components, path):
    return [np.zeros(len(path.keys), dtype=bool) for _ in components]


@st.composite
def situations(draw: st.DrawFn):
    """Components, a path, what exists in the store, what is known elsewhere, bounds."""
    pages = draw(st.integers(0, 24))
    one = st.one_of(
        st.builds(lambda group: component("full", Full(), group), st.integers(1, 6)),
        st.builds(lambda tokens: component("swa", Window(tokens)), st.integers(0, 12)),
        st.builds(lambda tokens: component("chunk", Chunk(tokens)), st.integers(1, 12)),
        st.just(component("state", Checkpoint())),
        st.just(component("ledge", Ledge())),
    )
    components = draw(st.lists(one, min_size=1, max_size=4, unique_by=lambda c: c.layout.component))
    often = st.sampled_from([True, True, True, False])
    ends, elsewhere = [], []
    for stored in components:
        some = draw(st.lists(often, min_size=pages, max_size=pages))
        ends.append([end for end in range(1, pages + 1) if some[end - 1] and stored.first_page(end) < end])
        if stored.rule.prefix_closed:
            elsewhere.append(np.arange(pages) < draw(st.integers(0, pages)))
        else:
            elsewhere.append(
                np.array(draw(st.lists(st.booleans(), min_size=pages, max_size=pages)), dtype=bool)
            )
    limit = draw(st.integers(0, pages))
    return components, path_of(pages), ends, elsewhere, limit, draw(st.integers(1, 9))


def joined(components, path, ends, elsewhere):
    """Elsewhere, and the pages of every object that exists."""
    bitmaps = [bitmap.copy() for bitmap in elsewhere]
    for stored, some, bitmap in zip(components, ends, bitmaps, strict=True):
        for end in some:
            bitmap[stored.first_page(end) : end] = True
    return bitmaps


@pytest.mark.rule("B-4", "B-5")
@given(situations())
def test_it_finds_every_boundary_that_was_stored_and_claims_no_other(situation):
    """A boundary was stored when each component has it elsewhere or in its own objects."""
    components, path, ends, elsewhere, limit, keys_a_call = situation
    rules = [c.rule for c in components]
    floor = deepest_boundary(rules, elsewhere, PAGE_TOKENS, limit)
    lookup = Lookup(components, path, elsewhere, Bounds(floor, limit, keys_a_call))
    sizes = search(lookup, keys_of(components, path, ends))
    assert not lookup.gave_up
    assert all(size <= keys_a_call for size in sizes)
    truth = joined(components, path, ends, elsewhere)
    for found, known, true in zip(lookup.bitmaps, elsewhere, truth, strict=True):
        assert not (found & ~true).any()
        assert len(found) == len(known)
    assert lookup.boundary_pages() <= deepest_boundary(rules, truth, PAGE_TOKENS, limit)
    assert lookup.boundary_pages() >= deepest_stored(components, ends, elsewhere, truth, limit)


def deepest_stored(components, ends, elsewhere, truth, limit):
    for boundary in range(limit, 0, -1):
        if all(
            known[c.rule.first_page(boundary, PAGE_TOKENS) : boundary].all()
            or (true[:boundary].all() if c.rule.prefix_closed else boundary in some)
            for c, some, known, true in zip(components, ends, elsewhere, truth, strict=True)
        ):
            return boundary
    return 0


@pytest.mark.rule("B-5")
@given(situations())
def test_the_reads_bring_exactly_what_the_boundary_lacks(situation):
    components, path, ends, elsewhere, limit, keys_a_call = situation
    lookup = Lookup(components, path, elsewhere, Bounds(0, limit, keys_a_call))
    search(lookup, keys_of(components, path, ends))
    boundary = lookup.boundary_pages()
    have = [bitmap.copy() for bitmap in elsewhere]
    reads = lookup.reads(boundary)
    for read in reads:
        stored = components[read.component]
        last = read.place.first_page + len(read.place.tokens) // PAGE_TOKENS
        assert last in ends[read.component]
        assert read.key == stored.layout.key(path.keys[last - 1])
        needed = stored.rule.first_page(boundary, PAGE_TOKENS)
        lacking = ~have[read.component][read.place.first_page : last]
        assert lacking[max(0, needed - read.place.first_page) : boundary - read.place.first_page].any()
        assert read.object_bytes == stored.layout.object_bytes(last - read.place.first_page)
        have[read.component][read.place.first_page : last] = True
    for stored, bitmap in zip(components, have, strict=True):
        assert bitmap[stored.rule.first_page(boundary, PAGE_TOKENS) : boundary].all()


@given(situations(), st.randoms())
def test_a_forgotten_object_is_not_counted_on_again(situation, random):
    components, path, ends, elsewhere, limit, keys_a_call = situation
    lookup = Lookup(components, path, elsewhere, Bounds(0, limit, keys_a_call))
    search(lookup, keys_of(components, path, ends))
    reads = lookup.reads(lookup.boundary_pages())
    if not reads:
        return
    gone = random.choice(reads)
    lookup.forget(gone)
    again = lookup.reads(lookup.boundary_pages())
    assert gone.key not in {read.key for read in again}


@pytest.mark.rule("B-4")
def test_a_whole_hit_costs_two_short_questions():
    """40 groups, then the boundary objects: a hit near the end asks for few of them."""
    components = [
        component("full", Full(), 16),
        component("swa", Window(20)),
        component("state", Checkpoint()),
    ]
    path = path_of(640)
    ends = [range(16, 641, 16), [640], [640]]
    lookup = Lookup(components, path, nothing(components, path))
    assert search(lookup, keys_of(components, path, ends)) == [40, 32]
    assert lookup.boundary_pages() == 640


@pytest.mark.rule("B-4")
def test_a_group_that_ends_beyond_the_limit_is_used():
    """An exact repeat may use one page less than the whole group that was stored."""
    components = [component("full", Full(), 8)]
    path = path_of(16)
    lookup = Lookup(components, path, nothing(components, path), Bounds(limit_pages=15))
    search(lookup, keys_of(components, path, [[8, 16]]))
    assert lookup.boundary_pages() == 15
    assert [read.place.first_page for read in lookup.reads(15)] == [0, 8]


@pytest.mark.rule("B-4")
def test_a_search_without_hits_ends_and_says_that_it_gave_up():
    components = [component("state", Checkpoint())]
    path = path_of(1000)
    lookup = Lookup(components, path, nothing(components, path), Bounds(keys_a_call=64, keys_max=200))
    sizes = search(lookup, set())
    assert sum(sizes) == 200
    assert max(sizes) <= 64
    assert lookup.gave_up
    assert lookup.boundary_pages() == 0


def test_what_is_known_elsewhere_is_not_asked_for():
    components = [component("full", Full(), 4), component("state", Checkpoint())]
    path = path_of(20)
    known = nothing(components, path)
    known[0][:8] = True
    known[1][7] = True
    lookup = Lookup(components, path, known, Bounds(floor_pages=8))
    keys = lookup.ask()
    assert keys == [components[0].layout.key(path.keys[end - 1]) for end in (12, 16, 20)]
    lookup.answer([True, False, False])
    assert lookup.ask() == [components[0].layout.key(path.keys[end - 1]) for end in (15, 14, 13)]
    lookup.answer([False, True, False])
    assert lookup.ask() == [components[1].layout.key(path.keys[end - 1]) for end in (14, 13, 12, 11, 10, 9)]
    lookup.answer([False, False, True, False, False, False])
    assert lookup.boundary_pages() == 12
    assert lookup.ask() == []
    assert [(r.component, r.place.first_page) for r in lookup.reads(12)] == [(0, 8), (1, 11)]


def test_of_a_boundary_only_the_components_that_lack_it_are_asked_for():
    components = [component("swa", Window(4)), component("state", Checkpoint())]
    path = path_of(6)
    known = nothing(components, path)
    known[0][:4] = True
    known[1][2] = True
    lookup = Lookup(components, path, known)
    asked = [(0, 6), (1, 6), (0, 5), (1, 5), (1, 4)]
    assert lookup.ask() == [components[index].layout.key(path.keys[end - 1]) for index, end in asked]
    lookup.answer([False, False, True, False, True])
    assert lookup.boundary_pages() == 4
    assert lookup.ask() == []


def test_wrong_shapes_are_refused():
    components = [component("state", Checkpoint())]
    with pytest.raises(ConfigError, match="bitmaps"):
        Lookup(components, path_of(3), [np.zeros(4, dtype=bool)])
    with pytest.raises(ConfigError, match="keys_a_call"):
        Lookup(components, path_of(3), [np.zeros(3, dtype=bool)], Bounds(keys_a_call=0))
