"""P and E: what was used, what is of no use any more, and what leaves first."""

from __future__ import annotations

import numpy as np
import pytest

from differential.compositions import FewestUses, Stairs
from graftline.components import Checkpoint, Chunk, Full, Window
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.plan import Held
from spec.sketch import HERE, Sketch, drawn, slots_of


@pytest.mark.rule("P-1")
def test_a_lease_touches_what_its_boundary_needs_and_a_match_nothing(sketch) -> None:
    """Components in their order, shallow nodes before deep ones, one tick each."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    lease = tree.grow(tree.hold(), "abc", swa="***").lease
    tree.core.release(tree.grow(lease, "def", swa="***").lease)
    assert tree.picture(ticks=True) == drawn("""
        0..3 abc | full 0..3 [0 1 2] @3 | swa 0..3 [100 101 102] @2
          3..6 def | full 3..6 [3 4 5] @4 | swa 3..6 [103 104 105] @5
    """)
    tree.find("abcdef")
    tree.use("abcdef")
    assert tree.picture(ticks=True) == drawn("""
        0..3 abc | full 0..3 [0 1 2] @6 | swa 0..3 [100 101 102] @2
          3..6 def | full 3..6 [3 4 5] @7 | swa 3..6 [103 104 105] @8
    """)


@pytest.mark.rule("P-1")
def test_an_insertion_touches_what_got_a_value_though_its_end_does_not_need_it(sketch) -> None:
    """Both halves of a new run that another component's gap cuts in two are new."""
    tree: Sketch = sketch(near=Window(1), far=Window(1))
    tree.put("abcdef", near="******", far="*....*")
    assert tree.picture(ticks=True) == drawn("""
        0..1 a | near 0..1 [0] @1 | far 0..1 [100] @3
          1..6 bcdef | near 1..6 [1 2 3 4 5] @2 | far 5..6 [101] @4
    """)


@pytest.mark.rule("P-1")
def test_a_holding_outside_of_what_the_end_needs_is_not_touched(sketch) -> None:
    """The repeat ends at 6 and needs the state there; the state at 2, in the same node, is not used."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state=".*....")
    tree.put("abcdef", full="......", state="......")
    assert tree.picture(ticks=True) == "0..6 abcdef | full 0..6 [0 1 2 3 4 5] @3 | state 1..2 [100] @2"


@pytest.mark.rule("P-1")
def test_where_nothing_is_needed_nothing_is_touched(sketch) -> None:
    """The second prompt ends at a seam inside the node: it uses no page of a chunk."""
    tree: Sketch = sketch(full=Full(), chunk=Chunk(3))
    tree.put("abcdef", chunk="******")
    tree.put("abc", full="...", chunk="...")
    assert (
        tree.picture(ticks=True)
        == "0..6 abcdef | full 0..6 [0 1 2 3 4 5] @3 | chunk 0..6 [100 101 102 103 104 105] @2"
    )


@pytest.mark.rule("P-1")
def test_the_unused_rest_of_a_split_node_stays_old(sketch) -> None:
    """X is older than Y; half of X is used again. The other half leaves before any of Y."""
    tree: Sketch = sketch(full=Full())
    tree.put("x" * 200)
    tree.put("y" * 200)
    tree.use("x" * 100 + "other")
    assert tree.evict("full", 50) == list(range(199, 149, -1))
    assert tree.hit("y" * 200) == 200
    assert tree.hit("x" * 200) == 150


@pytest.mark.rule("P-2")
def test_the_lowest_rank_leaves_first_then_the_older(own_sketch) -> None:
    tree: Sketch = own_sketch(policy=FewestUses(), state=Checkpoint())
    tree.put("A", state="*")
    tree.put("B", state="*")
    tree.put("C", state="*")
    tree.use("A")
    tree.use("C")
    tree.use("A")
    assert tree.evict("state", 3) == [1, 2, 0], "uses 1, 2, 3; by recency alone it were B, C, A as well"
    for text in "DEFG":
        tree.put(text, state="*")
    tree.use("E")
    assert tree.evict("state", 4) == [3, 5, 6, 4], "one use each: D, F, G by age; then E"


@pytest.mark.rule("P-2")
def test_halves_of_a_split_share_their_tick_and_the_shallower_leaves_first(sketch) -> None:
    tree: Sketch = sketch(swa=Window(1))
    tree.put("abcdef", swa="******")
    tree.put("abcXY", swa=".....")
    assert tree.picture(ticks=True) == drawn("""
        0..3 abc | swa 0..3 [0 1 2] @1
          3..6 def | swa 3..6 [3 4 5] @1
    """)
    assert tree.evict("swa", 6) == [0, 1, 2, 3, 4, 5]


@pytest.mark.rule("E-1")
def test_values_of_one_boundary_are_judged_together(sketch) -> None:
    """
    page          0 1 2 3 4 5 6 7
    full          * * * * * * * *
    swa (2)       * * * * * * * *
    state         . . . * . . . .      so the only agreed boundary is 4: swa needs [2, 4), full [0, 4)
    """
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa="********", state="...*....")
    assert dead(tree) == {"full": 4, "swa": 6, "state": 0}
    tree.evict("state", 1)
    assert dead(tree) == {"full": 8, "swa": 8, "state": 0}, "without the state nothing is of use"
    tree.put("abcdefgh", full="........", state=".......*")
    assert dead(tree) == {"full": 0, "swa": 6, "state": 0}


@pytest.mark.rule("E-1")
def test_what_a_boundary_below_needs_is_alive(sketch) -> None:
    """The window of boundary 5 reaches from its own node into the one above."""
    tree: Sketch = sketch(full=Full(), swa=Window(3))
    tree.put("abc", swa="..*")
    tree.put("abcde", swa="...**")
    assert tree.picture(valid=True) == drawn("""
        0..3 abc | full 0..3 [0 1 2] | swa 2..3 [100]
          3..5 de valid 5..5 | full 3..5 [6 7] | swa 3..5 [101 102]
    """)
    assert dead(tree) == {"full": 0, "swa": 0}
    tree.evict("swa", 1)
    assert dead(tree) == {"full": 5, "swa": 2}, "the window broke: its rest is dead in both nodes"


def dead(tree: Sketch) -> dict[str, int]:
    return {pool.component: pool.dead_pages for pool in tree.core.stats().pools}


@pytest.mark.rule("E-2")
def test_dead_pages_leave_before_live_ones_however_fresh_they_are(sketch) -> None:
    """A long request streams through its window while an old prefix lies idle: the old one stays whole."""
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("idle", swa="..**", state="...*")
    lease = tree.hold()
    for text, state in (("abc", "..."), ("def", "..."), ("ghi", "..."), ("jkl", "..*")):
        lease = tree.grow(lease, text, swa="***", state=state).lease
    tree.core.release(lease)
    freed = tree.core.evict("swa", 10)
    assert slots_of(freed, "swa") == list(range(102, 112)), "all but the window of the last boundary"
    assert dict(freed.dead_pages) == {"swa": 10}
    assert tree.hit("idle") == 4
    assert tree.evict("swa", 1) == [100], "of live ones the idle one is the oldest"


@pytest.mark.rule("E-2", "E-6")
def test_what_an_eviction_makes_useless_elsewhere_leaves_next(sketch) -> None:
    """
    page          0 1 2 3|4 5 6 7
    swa (2)       * * * *|* * * *      cut before page 4, where another path was put in later
    state         . . . .|* * * *      boundaries 5 to 8; only 5 needs page 3, which was used last
    """
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa="********", state="....****")
    tree.put("abcdX", swa="....*", state=".....")
    assert sorted(tree.evict("swa", 4)) == [100, 101, 102, 108], "of no use to any boundary"
    freed = tree.core.evict("swa", 3)
    assert slots_of(freed, "swa") == [104, 103, 105], "without page 4 page 3 serves nobody"
    assert dict(freed.dead_pages) == {"swa": 1}


@pytest.mark.rule("E-3")
def test_full_attention_leaves_from_the_tail_of_the_coldest_leaf_page_by_page(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("abcdef")
    tree.put("abXYZ")
    assert tree.evict("full", 2) == [5, 4]
    assert tree.evict("full", 4) == [3, 2, 10, 9]
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1]
          2..3 X | full 2..3 [8]
    """)


@pytest.mark.rule("E-3", "E-6")
def test_one_slot_of_a_leaf_of_twenty_thousand_is_one_slot(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    lease = tree.hold()
    slots = np.arange(20_000, dtype=np.int32)
    tree.core.insert(lease, np.arange(20_000, dtype=np.uint32), {"full": [Held(0, slots)]})
    assert tree.evict("full", 1) == [19_999]
    assert tree.evict("full", 3) == [19_998, 19_997, 19_996]
    assert tree.core.stats().path_pages == 19_996


@pytest.mark.rule("E-3")
def test_a_leaf_with_a_lease_keeps_all_its_pages(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("abcdef")
    lease = tree.hold("abcd")
    assert tree.evict("full", 9) == [5, 4]
    tree.core.release(lease)
    assert tree.evict("full", 9) == [3, 2, 1, 0]


@pytest.mark.rule("E-4")
def test_other_components_lose_dead_heads_then_dead_tails_then_live_heads(sketch) -> None:
    """
    page          0 1 2 3 4 5 6 7
    swa (2)       * * * * * * * *      states at 4 and 5: the boundaries 4, 5 need [2, 5)
    order         0 1             2 = 7, 6, 5; then 2, 3, 4
    """
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa="********", state="...**...")
    freed = tree.core.evict("swa", 6)
    assert slots_of(freed, "swa") == [100, 101, 107, 106, 105, 102]
    assert dict(freed.dead_pages) == {"swa": 5}
    assert tree.hit("abcdefgh") == 5
    assert tree.evict("swa", 9) == [103, 104]


@pytest.mark.rule("E-4")
def test_only_what_lies_before_the_first_leased_page_may_leave(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdef", swa="******")
    lease = tree.hold("abcdef")
    assert tree.evict("swa", 9) == [100, 101, 102, 103]
    tree.core.release(lease)
    assert tree.evict("swa", 9) == [104, 105]


@pytest.mark.rule("E-4", "E-2")
def test_a_lock_behind_a_run_does_not_keep_its_dead_tail(sketch) -> None:
    """The lease at 8 protects pages 6 and 7, which hold nothing; of pages 0..4 the dead ones go first."""
    tree: Sketch = sketch(swa=Window(2), state=Checkpoint())
    tree.grow(tree.hold(), "abcdefgh", swa="****....", state=".*......")
    assert tree.picture(valid=True) == (
        "0..8 abcdefgh valid 2..2 leases 1"
        " | swa 0..4 [0 1 2 3] | swa locks 6x1 | state 1..2 [100] | state locks 7x1"
    )
    assert tree.evict("swa", 9) == [3, 2, 0, 1]


@pytest.mark.rule("E-4", "E-2")
def test_a_run_past_all_agreed_boundaries_leaves_from_its_head(sketch) -> None:
    """
    page          0 1 2 3 4 5 6
    chunk (2)     . . . . . * *        at the seams 2, 4 and 6 nothing is needed
    state         . * * * . . .        so 2 and 4 are agreed, and no page of the chunk is needed
    """
    tree: Sketch = sketch(chunk=Chunk(2), state=Checkpoint())
    tree.put("abcdefg", chunk=".....**", state=".***...")
    freed = tree.core.evict("chunk", 2)
    assert slots_of(freed, "chunk") == [0, 1], "all of the run is dead: it leaves in order"
    assert dict(freed.dead_pages) == {"chunk": 2}


@pytest.mark.rule("E-1", "E-4")
def test_what_an_eviction_makes_useless_counts_as_dead_at_once(own_sketch) -> None:
    """Boundaries 1, 2 need from page 0 on, 3, 4 from page 2 on: when page 0 goes, page 1 is of no use."""
    tree: Sketch = own_sketch(stairs=Stairs())
    tree.put("abcdef", stairs="******")
    freed = tree.core.evict("stairs", 3)
    assert slots_of(freed, "stairs") == [0, 1, 2]
    assert dict(freed.dead_pages) == {"stairs": 1}


@pytest.mark.rule("E-5")
def test_a_page_of_full_attention_takes_along_what_lies_on_it(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa="..****", state="..**.*")
    freed = tree.core.evict("full", 3)
    assert {name: slots.tolist() for name, slots in freed.slots.items()} == {
        "full": [5, 4, 3],
        "swa": [103, 102, 101],
        "state": [202, 201],
    }
    assert tree.picture() == "0..3 abc | full 0..3 [0 1 2] | swa 2..3 [100] | state 2..3 [200]"


@pytest.mark.rule("E-5")
def test_a_window_or_state_that_leaves_keeps_the_path(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa="....**", state=".....*")
    tree.evict("swa", 2)
    tree.evict("state", 1)
    assert tree.picture() == "0..6 abcdef | full 0..6 [0 1 2 3 4 5]"
    assert tree.find("abcdef").branch_tokens == 6, "the next request need not compute the full layers anew"


@pytest.mark.rule("E-6")
@pytest.mark.parametrize("wanted", [0, 1, 2, 5, 11, 12, 100])
def test_evicting_n_frees_n_or_all_that_may_go(sketch, wanted: int) -> None:
    tree: Sketch = sketch(full=Full())
    for text in ("abcd", "abXY", "QRSTUV"):
        tree.put(text)
    tree.hold("QR")
    assert len(tree.evict("full", wanted)) == min(wanted, 10)
    tree.core.check()


@pytest.mark.rule("E-6")
@pytest.mark.parametrize("leased", [False, True])
def test_the_cost_of_an_eviction_does_not_grow_with_the_leaves_or_the_leases(
    own_sketch, leased: bool
) -> None:
    """Counted in questions to the rule: as many with a thousand other leaves, leased or not, as with ten."""

    class Counted(Window):
        __slots__ = ()
        asked = 0

        def first_page(self, boundary_pages: int, page_tokens: int) -> int:
            Counted.asked += 1
            return super().first_page(boundary_pages, page_tokens)

    costs = []
    for leaves in (10, 1000):
        tree: Sketch = own_sketch(full=Full(), swa=Counted(2))
        tree.put("victim", swa="....**")
        root = tree.hold()
        for leaf in range(leaves):
            slot = np.array([1000 + 2 * leaf, 1001 + 2 * leaf], dtype=np.int32)
            tokens = [1000 + leaf, 7]
            tree.core.insert(root, tokens, {"full": [Held(0, slot)], "swa": [Held(0, slot)]})
            if leased:
                tree.core.lease(tree.core.match(tree.find("").namespace, tokens))
        Counted.asked = 0
        assert tree.evict("full", 6) == [5, 4, 3, 2, 1, 0]
        costs.append(Counted.asked)
    assert costs[0] == costs[1]


@pytest.mark.rule("E-6")
def test_evict_refuses_what_makes_no_sense(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    with pytest.raises(ConfigError, match="-1"):
        tree.core.evict("full", -1)
    with pytest.raises(ConfigError, match="no component is named 'swa'"):
        tree.core.evict("swa", 1)


@pytest.mark.rule("E-7")
def test_clearing_leaves_what_leases_protect_and_nothing_else(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa=".*****", state=".*.*.*")
    tree.put("abXY", swa="..**", state="...*")
    lease = tree.hold("abcd")
    freed = tree.core.clear()
    assert {name: sorted(slots.tolist()) for name, slots in freed.slots.items()} == {
        "full": [4, 5, 8, 9],
        "swa": [100, 103, 104, 105, 106],
        "state": [200, 202, 203],
    }
    assert dict(freed.dead_pages) == {}, "cleared values were not of no use"
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | full locks 0x1
          2..4 cd leases 1 | full 2..4 [2 3] | full locks 2x1 | swa 2..4 [101 102] | swa locks 2x1\
 | state 3..4 [201] | state locks 3x1
    """)
    tree.core.release(lease)
    tree.core.clear()
    assert tree.core.dump() == ""


@pytest.mark.rule("E-8", "L-5")
def test_one_namespace_is_evicted_from_alone_in_the_order_among_all(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    spaces = [Namespace("m", salt=salt) for salt in "xyz"]
    for text in ("ab", "c"):
        for space in spaces[:2]:
            tree.put(text, namespace=space, swa="**"[: len(text)])
    held = [tree.core.held_pages("swa", space) for space in spaces]
    assert held == [3, 3, 0]
    freed = tree.core.evict("full", 2, spaces[1])
    assert slots_of(freed, "full") == [3, 2], "the older path of the second namespace, from its tail"
    assert slots_of(tree.core.evict("full", 9, spaces[2]), "full") == []
    assert slots_of(tree.core.evict("full", 9, spaces[1]), "full") == [5]
    assert [tree.core.held_pages("full", space) for space in spaces] == [3, 0, 0]
    tree.put("d", namespace=spaces[1], swa="*")
    assert slots_of(tree.core.evict("full", 9, spaces[1]), "full") == [6]
    assert slots_of(tree.core.evict("full", 9), "full") == [1, 0, 4]
    with pytest.raises(ConfigError, match="no component is named 'x'"):
        tree.core.held_pages("x", spaces[0])
    tree.core.check()


@pytest.mark.rule("E-8", "E-2", "P-2")
def test_values_used_later_go_into_the_order_of_their_namespace_too(sketch) -> None:
    tree: Sketch = sketch(state=Checkpoint())
    for text in "abc":
        tree.put(text, state="*")
    assert slots_of(tree.core.evict("state", 1, HERE), "state") == [0]
    tree.use("b")
    tree.put("d", state="*")
    assert slots_of(tree.core.evict("state", 9, HERE), "state") == [2, 1, 3]
