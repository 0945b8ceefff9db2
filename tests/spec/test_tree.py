"""T: the form of the tree. Each test draws it before, does one thing, and draws it after."""

from __future__ import annotations

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import IntegrityError, StaleHandleError
from graftline.key import Namespace
from spec.sketch import HERE, Sketch, drawn, tokens_of


@pytest.mark.rule("T-1", "T-2")
def test_a_node_is_a_run_of_pages_and_is_cut_where_paths_part(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("abcdef")
    assert tree.picture() == "0..6 abcdef | full 0..6 [0 1 2 3 4 5]"
    tree.put("abXY")
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1]
          2..4 XY | full 2..4 [8 9]
          2..6 cdef | full 2..6 [2 3 4 5]
    """)


@pytest.mark.rule("T-1")
def test_a_longer_prompt_continues_below_the_node_that_ends(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("ab")
    tree.put("abcd")
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1]
          2..4 cd | full 2..4 [4 5]
    """)


@pytest.mark.rule("T-2")
def test_children_differ_in_their_first_page_not_in_their_first_token(sketch) -> None:
    """Pages of four tokens: `aaab` and `aaac` share three tokens and are two children all the same."""
    tree: Sketch = sketch(page_tokens=4, full=Full())
    tree.put("aaabxxxx")
    tree.put("aaacxxxx")
    tree.put("aaabyyyy")
    assert tree.picture() == drawn("""
        0..1 aaab | full 0..1 [0]
          1..2 xxxx | full 1..2 [1]
          1..2 yyyy | full 1..2 [5]
        0..2 aaacxxxx | full 0..2 [2 3]
    """)


@pytest.mark.rule("T-3")
def test_a_gap_between_two_runs_cuts_the_node_at_the_end_of_the_upper_one(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdefgh", swa="**......")
    assert tree.picture() == "0..8 abcdefgh | full 0..8 [0 1 2 3 4 5 6 7] | swa 0..2 [100 101]"
    tree.put("abcdefgh", swa=".....**.")
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | swa 0..2 [100 101]
          2..8 cdefgh | full 2..8 [2 3 4 5 6 7] | swa 5..7 [102 103]
    """)


@pytest.mark.rule("T-3")
def test_a_value_next_to_a_run_prolongs_it_without_a_cut(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdef", swa="..**..")
    tree.put("abcdef", swa=".*..*.")
    assert tree.picture() == "0..6 abcdef | full 0..6 [0 1 2 3 4 5] | swa 1..5 [102 100 101 103]"


@pytest.mark.rule("T-3")
@pytest.mark.parametrize("pieces", [["**.**"], ["*....", ".*.**"], [".*...", "*..**"], ["...**", "**..."]])
def test_where_a_node_is_cut_does_not_depend_on_how_values_are_cut_into_runs(
    sketch, pieces: list[str]
) -> None:
    """One insertion or several, in any order: a cut stands after `ab`, where a gap remains in the end."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    for piece in pieces:
        tree.put("abcde", swa=piece)
    assert [line.split(" | swa")[0] for line in tree.picture().splitlines()][-1].startswith("  2..5 cde")


@pytest.mark.rule("T-3", "N-2")
def test_neighbouring_runs_of_one_insertion_are_one_run(sketch) -> None:
    """Page 4 is held; 0, 1 and 2, 3 come as two runs. Together they reach page 4: no gap, no cut."""
    tree: Sketch = sketch(swa=Window(2))
    tree.put("abcde", swa="....*")
    runs = [*tree.runs("swa", 2, "**"), *tree.runs("swa", 0, "**")]
    tree.core.insert(tree.hold(), tokens_of("abcde"), {"swa": runs})
    assert tree.picture().splitlines()[1] == "0..5 abcde | swa 0..5 [3 4 1 2 0]"


@pytest.mark.rule("T-4")
def test_what_nothing_is_held_of_is_cut_back_and_removed_up_to_the_root(sketch) -> None:
    """Without a prefix-closed component tokens stay only as far as a value needs them for its name."""
    tree: Sketch = sketch(state=Checkpoint())
    tree.put("abcdef", state="...*..")
    assert tree.picture() == "0..4 abcd | state 3..4 [0]"
    tree.put("abXY", state="...*")
    assert tree.picture() == drawn("""
        0..2 ab
          2..4 XY | state 3..4 [1]
          2..4 cd | state 3..4 [0]
    """)
    tree.evict("state", 1)
    assert tree.picture() == drawn("""
        0..2 ab
          2..4 XY | state 3..4 [1]
    """)
    tree.evict("state", 1)
    assert tree.core.dump() == ""
    assert tree.core.stats().nodes == 0


@pytest.mark.rule("T-4")
def test_a_tombstone_stays_while_something_below_is_held(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1), state=Checkpoint())
    tree.put("abcd", swa=".*.*", state=".*.*")
    tree.evict("state", 1)
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | swa 1..2 [100]
          2..4 cd | full 2..4 [2 3] | swa 3..4 [101] | state 3..4 [201]
    """)
    tree.core.check()


@pytest.mark.rule("T-5")
def test_a_split_cuts_runs_locks_usage_and_valid_boundaries(sketch) -> None:
    """A lease at 5 runs through the node; a new path cuts it at 3 and counts a use of the upper half only."""
    tree: Sketch = sketch(full=Full(), swa=Window(3))
    lease = tree.grow(tree.hold(), "abcde", swa=".****").lease
    assert tree.picture(ticks=True, valid=True) == (
        "0..5 abcde valid 4..5 leases 1"
        " | full 0..5 [0 1 2 3 4] @1 | full locks 0x1 | swa 1..5 [100 101 102 103] @2 | swa locks 2x1"
    )
    tree.put("abcXY")
    assert tree.picture(ticks=True, valid=True) == drawn("""
        0..3 abc | full 0..3 [0 1 2] @3 | full locks 0x1 | swa 1..3 [100 101] @5 | swa locks 2x1
          3..5 XY | full 3..5 [8 9] @4
          3..5 de valid 4..5 leases 1 | full 3..5 [3 4] @1 | full locks 3x1\
 | swa 3..5 [102 103] @2 | swa locks 3x1
    """)
    tree.core.release(lease)
    assert "locks" not in tree.picture()


@pytest.mark.rule("T-5")
def test_both_halves_remember_that_a_value_was_lost(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state=".*...*")
    tree.evict("state", 2)
    tree.put("abcXY")
    assert tree.find("abcdef").reason == "evicted"
    assert tree.find("ab").reason == "evicted"
    assert tree.find("abcXY").reason == "no checkpoint here", "the new branch never had one"


@pytest.mark.rule("T-5", "L-1")
def test_a_match_survives_splits_of_its_node(sketch) -> None:
    """The handle stays with the deeper half; a boundary in the upper half is found upward from it."""
    tree: Sketch = sketch(full=Full())
    tree.put("abcdef")
    found = tree.find("abc")
    tree.put("abcdXY")
    tree.put("abQ")
    lease = tree.core.lease(found)
    assert lease.held["full"].slots.tolist() == [0, 1, 2]
    tree.core.check()


@pytest.mark.rule("T-6")
def test_a_match_whose_node_is_gone_is_refused_though_the_path_came_back(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("abcd")
    found = tree.find("abcd")
    tree.evict("full", 4)
    tree.put("abcd")
    before = tree.core.dump()
    with pytest.raises(StaleHandleError, match="not in the tree any more"):
        tree.core.lease(found)
    assert tree.core.dump() == before
    assert tree.hold("abcd").boundary_tokens == 4, "matching again helps"


@pytest.mark.rule("T-6")
def test_a_released_lease_is_stale_whatever_it_is_used_for(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(1))
    tree.put("abcd", swa="...*")
    lease = tree.hold("abcd")
    tree.core.release(lease)
    again = tree.hold("abcd")
    before = tree.core.dump()
    for use in (
        lambda: tree.core.release(lease),
        lambda: tree.core.release_components(lease, ["swa"]),
        lambda: tree.core.insert(lease, tokens_of("e"), {}),
    ):
        with pytest.raises(StaleHandleError, match="was released"):
            use()
    assert tree.core.dump() == before, "the newer lease kept its protection"
    assert again.handle != lease.handle


@pytest.mark.rule("T-7")
def test_prefix_closed_components_hold_all_pages_of_every_node(sketch) -> None:
    """Two of them, and a window with holes: an eviction of either takes the page from both."""
    tree: Sketch = sketch(keys=Full(), latent=Full(), swa=Window(1))
    tree.put("abcd", swa=".*.*")
    assert tree.evict("latent", 1) == [103]
    assert tree.picture() == drawn("""
        0..2 ab | keys 0..2 [0 1] | latent 0..2 [100 101] | swa 1..2 [200]
          2..3 c | keys 2..3 [2] | latent 2..3 [102]
    """)
    tree.core.check()


@pytest.mark.rule("T-8")
def test_a_slot_given_twice_is_found_by_check(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("ab")
    tree.next_slot["full"] = 1
    tree.put("XY")
    with pytest.raises(IntegrityError, match="T-8") as caught:
        tree.core.check()
    assert caught.value.rule == "T-8"


@pytest.mark.rule("T-8", "N-4")
def test_a_repeated_prompt_never_puts_a_slot_in_twice(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    for _ in range(4):
        tree.put("abcdef", swa="....**")
    assert tree.picture() == "0..6 abcdef | full 0..6 [0 1 2 3 4 5] | swa 4..6 [100 101]"
    tree.core.check()


@pytest.mark.rule("T-4", "K-3")
def test_each_namespace_has_a_root_of_its_own_that_goes_with_its_last_page(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    other = Namespace("m", salt="tenant")
    tree.put("ab")
    tree.put("ab", namespace=other)
    assert tree.core.stats().nodes == 4
    assert tree.core.dump().splitlines()[::2] == [repr(HERE), repr(other)]
    tree.evict("full", 2)
    assert tree.core.stats().nodes == 2
    tree.core.clear()
    assert tree.core.stats().nodes == 0
