"""N: what becomes of the values that a request gives."""

from __future__ import annotations

import numpy as np
import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError
from graftline.plan import Held
from spec.sketch import Sketch, drawn, tokens_of


def runs_of(given) -> dict[str, list[tuple[int, list[int]]]]:
    """Runs as (first page, slots), the neighbours among them joined."""
    told: dict[str, list[tuple[int, list[int]]]] = {}
    for name, runs in given.items():
        for run in runs:
            mine = told.setdefault(name, [])
            if mine and mine[-1][0] + len(mine[-1][1]) == run.first_page:
                mine[-1][1].extend(run.slots.tolist())
            else:
                mine.append((run.first_page, run.slots.tolist()))
    return told


@pytest.mark.rule("N-1")
def test_an_insertion_grows_from_a_lease(sketch) -> None:
    """The tokens follow on the lease's boundary; those before it are not given again."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcd", swa="..**")
    lease = tree.hold("abcd")
    done = tree.grow(lease, "ef", swa="**", move=False)
    assert (done.boundary_tokens, done.new_pages) == (6, 2)
    assert tree.picture() == drawn("""
        0..4 abcd leases 1 | full 0..4 [0 1 2 3] | full locks 0x1 | swa 2..4 [100 101] | swa locks 2x1
          4..6 ef | full 4..6 [4 5] | swa 4..6 [102 103]
    """)


@pytest.mark.rule("N-1", "K-2")
def test_a_rest_of_less_than_a_page_is_not_inserted(sketch) -> None:
    tree: Sketch = sketch(page_tokens=4, full=Full())
    done = tree.put("abcdefghij")
    assert (done.boundary_tokens, done.new_pages) == (8, 2)


@pytest.mark.rule("N-1")
def test_the_cost_is_that_of_the_new_tokens(own_sketch) -> None:
    """Asked of the rule: growing a path of 2000 pages asks as often as growing one of 20."""

    class Counted(Window):
        __slots__ = ()
        asked = 0

        def first_page(self, boundary_pages: int, page_tokens: int) -> int:
            Counted.asked += 1
            return super().first_page(boundary_pages, page_tokens)

    costs = []
    for pages in (20, 2000):
        tree: Sketch = own_sketch(full=Full(), swa=Counted(3))
        lease = tree.hold()
        tokens = np.arange(pages, dtype=np.uint32)
        values = {
            "full": [Held(0, np.arange(pages, dtype=np.int32))],
            "swa": [Held(pages - 3, np.arange(3, dtype=np.int32))],
        }
        lease = tree.core.insert(lease, tokens, values, move_lease=True).lease
        Counted.asked = 0
        more = {"full": [Held(pages, np.array([9000], dtype=np.int32))]}
        tree.core.insert(lease, [7], more, move_lease=True)
        costs.append(Counted.asked)
    assert costs[0] == costs[1]


WRONG = {
    "before the lease": {"swa": [Held(1, np.array([7], dtype=np.int32))]},
    "past the end": {"swa": [Held(3, np.array([7, 8], dtype=np.int32))]},
    "overlapping": {
        "swa": [Held(2, np.array([7, 8], dtype=np.int32)), Held(3, np.array([9], dtype=np.int32))]
    },
    "of nobody": {"nobody": [Held(2, np.array([7], dtype=np.int32))]},
}


@pytest.mark.rule("N-2")
@pytest.mark.parametrize("move", [False, True])
@pytest.mark.parametrize("fault", WRONG)
def test_a_run_outside_the_path_or_over_another_is_refused(sketch, fault: str, move: bool) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("ab", swa="**")
    lease = tree.hold("ab")
    before, events = tree.core.dump(), len(tree.core.take_events())
    values = {"full": [Held(2, np.array([50, 51], dtype=np.int32))], **WRONG[fault]}
    with pytest.raises(ConfigError, match=r"swa|nobody"):
        tree.core.insert(lease, tokens_of("cd"), values, move_lease=move)
    assert tree.core.dump() == before
    assert events
    assert tree.core.take_events() == []
    tree.core.check()


@pytest.mark.rule("N-2")
def test_runs_have_holes_between_them_and_come_in_any_order(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    values = {
        "full": [Held(3, np.array([3, 4, 5], dtype=np.int32)), Held(0, np.array([0, 1, 2], dtype=np.int32))],
        "state": [Held(5, np.array([9], dtype=np.int32)), Held(1, np.array([8], dtype=np.int32))],
    }
    tree.remember("abcdef")
    done = tree.core.insert(tree.hold(), tokens_of("abcdef"), values)
    assert runs_of(done.adopted) == {"full": [(0, [0, 1, 2, 3, 4, 5])], "state": [(1, [8]), (5, [9])]}
    assert tree.picture() == drawn("""
        0..0 root leases 1
        0..2 ab | full 0..2 [0 1] | state 1..2 [8]
          2..6 cdef | full 2..6 [2 3 4 5] | state 5..6 [9]
    """)


@pytest.mark.rule("N-3")
@pytest.mark.parametrize("bitmap", ["...", "**.", ".**", "*.*"])
def test_a_prefix_closed_component_gives_every_new_page(sketch, bitmap: str) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("ab", swa=".*")
    lease = tree.hold("ab")
    before = tree.core.dump()
    with pytest.raises(
        ConfigError, match=f"'full' needs every page of a prefix, page {2 + bitmap.index('.')}"
    ):
        tree.grow(lease, "cde", full=bitmap, swa="***")
    assert tree.core.dump() == before
    tree.core.check()


@pytest.mark.rule("N-3")
def test_it_need_not_give_pages_that_the_tree_knows(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("abcd", swa="....")
    done = tree.put("abcdef", full="....**", swa="...*.*")
    assert done.new_pages == 2
    assert tree.hit("abcdef") == 6


@pytest.mark.rule("N-4")
def test_a_duplicate_stays_the_callers(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcd", swa="..**")
    done = tree.put("abcdef", full="******", swa="..****")
    assert runs_of(done.duplicates) == {"full": [(0, [4, 5, 6, 7])], "swa": [(2, [102, 103])]}
    assert runs_of(done.adopted) == {"full": [(4, [8, 9])], "swa": [(4, [104, 105])]}
    assert tree.picture() == drawn("""
        0..4 abcd | full 0..4 [0 1 2 3] | swa 2..4 [100 101]
          4..6 ef | full 4..6 [8 9] | swa 4..6 [104 105]
    """)


@pytest.mark.rule("N-4", "N-5")
def test_healing_a_window_leaves_the_full_slots_that_another_request_reads(sketch) -> None:
    """A runs on the path. B computed the same tokens and brings a window: A's slots do not change."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    a = tree.grow(tree.hold(), "abcd", swa="....").lease
    done = tree.put("abcd", full="****", swa="..**")
    assert runs_of(done.duplicates) == {"full": [(0, [4, 5, 6, 7])]}
    assert runs_of(done.adopted) == {"swa": [(2, [100, 101])]}
    assert a.held["full"].slots.tolist() == [0, 1, 2, 3]
    assert tree.picture() == (
        "0..4 abcd leases 1 | full 0..4 [0 1 2 3] | full locks 0x1 | swa 2..4 [100 101] | swa locks 2x1"
    )


@pytest.mark.rule("N-5")
def test_a_tombstone_is_healed_by_the_next_request_that_passes(sketch) -> None:
    """
    page          0 1 2 3 4 5
    swa held      . . . . . .      evicted
    swa given     . . * * . *
    """
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdef", swa="******")
    tree.evict("swa", 6)
    assert tree.hit("abcdef") == 0
    done = tree.put("abcdef", full="......", swa="..**.*")
    assert runs_of(done.adopted) == {"swa": [(2, [106, 107]), (5, [108])]}
    assert tree.hit("abcdef") == 4


@pytest.mark.rule("N-5")
def test_adopted_and_duplicates_together_are_what_was_given(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(3), state=Checkpoint())
    tree.put("abcdef", swa="*..*.*", state=".*...*")
    done = tree.put("abcdefgh", full="********", swa="******.*", state="*****.**")
    for name in ("full", "swa", "state"):
        given = [done.adopted.get(name, ()), done.duplicates.get(name, ())]
        slots = sorted(int(slot) for runs in given for run in runs for slot in run.slots)
        count = {"full": 8, "swa": 7, "state": 7}[name]
        assert slots == list(range(tree.next_slot[name] - count, tree.next_slot[name]))
        pages = [page for run in done.adopted[name] for page in range(run.first_page, run.end_page)]
        assert pages == sorted(pages), "in order of the page"


@pytest.mark.rule("N-6")
def test_the_lease_moves_to_the_end_of_the_path(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    lease = tree.grow(tree.hold(), "abcd", swa="..**").lease
    done = tree.grow(lease, "ef", swa="**")
    assert done.lease.boundary_tokens == 6
    assert done.lease.held["full"].slots.tolist() == [0, 1, 2, 3, 4, 5]
    assert done.lease.held["swa"].slots.tolist() == [102, 103]
    assert tree.picture() == drawn("""
        0..4 abcd | full 0..4 [0 1 2 3] | full locks 0x1 | swa 2..4 [100 101]
          4..6 ef leases 1 | full 4..6 [4 5] | full locks 4x1 | swa 4..6 [102 103] | swa locks 4x1
    """)
    assert tree.evict("swa", 9) == [100, 101], "the window that the request has left"


@pytest.mark.rule("N-6")
def test_the_moved_lease_reads_the_trees_slots_not_the_callers_duplicates(sketch) -> None:
    """Two requests computed the same prompt; the second goes on with what the first put in."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    first, second = tree.hold(), tree.hold()
    tree.grow(first, "abcd", swa="..**")
    done = tree.grow(second, "abcd", swa="..**")
    assert done.new_pages == 0
    assert done.lease.held["full"].slots.tolist() == [0, 1, 2, 3]
    assert done.lease.held["swa"].slots.tolist() == [100, 101]


@pytest.mark.rule("N-6")
def test_without_move_the_lease_stays_where_it_was(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    lease = tree.grow(tree.hold(), "ab").lease
    done = tree.grow(lease, "cd", move=False)
    assert done.lease.handle == lease.handle
    assert tree.evict("full", 9) == [3, 2]


@pytest.mark.rule("N-6", "P-1")
def test_what_lies_behind_the_end_of_a_moved_lease_is_not_refreshed(sketch) -> None:
    """X is longer than the repeat of its first half: only that half is younger than Y afterwards."""
    tree: Sketch = sketch(full=Full())
    tree.put("abcdefgh")
    tree.put("QRSTUVWX")
    tree.core.release(tree.grow(tree.hold(), "abcd").lease)
    assert tree.evict("full", 4) == [7, 6, 5, 4]


@pytest.mark.rule("N-3", "T-4")
def test_a_path_without_any_value_is_not_kept(sketch) -> None:
    tree: Sketch = sketch(swa=Window(2))
    tree.put("abcdef", swa="......")
    assert tree.core.dump() == ""
