"""L: leases protect what one boundary needs, and release undoes them exactly."""

from __future__ import annotations

import random

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError, StaleHandleError
from spec.sketch import Sketch, drawn


@pytest.mark.rule("L-1")
def test_a_lease_protects_what_the_boundary_needs_and_splits_the_node_there(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa=".*****", state="...**.")
    lease = tree.hold("abcd")
    assert tree.picture() == drawn("""
        0..4 abcd leases 1 | full 0..4 [0 1 2 3] | full locks 0x1 | swa 1..4 [100 101 102] | swa locks 2x1\
 | state 3..4 [200] | state locks 3x1
          4..6 ef | full 4..6 [4 5] | swa 4..6 [103 104] | state 4..5 [201]
    """)
    held = {name: (run.first_page, run.slots.tolist()) for name, run in lease.held.items()}
    assert held == {"full": (0, [0, 1, 2, 3]), "swa": (2, [101, 102]), "state": (3, [200])}
    evicted = {name: tree.evict(name, 100) for name in ("swa", "state", "full")}
    assert evicted == {"swa": [104, 100, 103], "state": [201], "full": [5, 4]}, "all but the protected"


@pytest.mark.rule("L-1")
def test_a_lease_of_the_empty_prefix_needs_nothing(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    lease = tree.hold("never seen")
    assert tree.picture() == "0..0 root leases 1"
    assert [len(run.slots) for run in lease.held.values()] == [0, 0]
    tree.core.release(lease)
    assert tree.core.dump() == ""


@pytest.mark.rule("L-1")
@pytest.mark.parametrize("taken", ["swa", "state", "full"])
def test_an_outdated_match_is_refused_and_changes_nothing(sketch, taken: str) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa="....**", state=".*...*")
    found = tree.find("abcdef")
    assert found.boundary_tokens == 6
    tree.evict(taken, 2)
    before = tree.core.dump()
    with pytest.raises(StaleHandleError, match="boundary 6 is not valid any more"):
        tree.core.lease(found)
    assert tree.core.dump() == before


@pytest.mark.rule("L-1")
def test_held_is_never_more_than_the_gapless_run_up_to_the_boundary(sketch) -> None:
    """A lease moved to a boundary that a hole makes invalid: no slot is told for a page that has none."""
    tree: Sketch = sketch(full=Full(), swa=Window(4))
    done = tree.grow(tree.hold(), "abcdef", swa="..*..*")
    held = done.lease.held["swa"]
    assert (held.first_page, held.slots.tolist()) == (5, [101])
    done = tree.grow(done.lease, "gh", swa="*.")
    held = done.lease.held["swa"]
    assert (held.first_page, held.slots.tolist()) == (8, [])


@pytest.mark.rule("L-2")
def test_a_lock_is_a_place_and_covers_a_tombstone_healed_later(sketch) -> None:
    """Lock a node without a state, let a state come, release: the state is protected, then free again."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    lease = tree.grow(tree.hold(), "abcd", state="....").lease
    assert tree.picture() == "0..4 abcd leases 1 | full 0..4 [0 1 2 3] | full locks 0x1 | state locks 3x1"
    tree.put("abcd", state="...*")
    assert tree.evict("state", 1) == []
    tree.core.release(lease)
    assert "locks" not in tree.core.dump()
    assert tree.evict("state", 1) == [100]
    tree.core.check()


@pytest.mark.rule("L-2", "L-3")
@pytest.mark.parametrize("early", [False, True])
def test_one_lease_given_back_never_takes_anothers_lock(sketch, early: bool) -> None:
    """A leases over a tombstone; the window is healed; B leases the same; A goes: B stays protected."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    a = tree.grow(tree.hold(), "abcd", swa="....").lease
    tree.put("abcd", swa="..**")
    b = tree.hold("abcd")
    assert b.boundary_tokens == 4
    assert "swa locks 2x2" in tree.picture()
    if early:
        tree.core.release_components(a, ["swa"])
        tree.core.release_components(a, ["swa"])
    else:
        tree.core.release(a)
    assert "swa locks 2x1" in tree.picture()
    assert tree.evict("swa", 2) == [], "still B's"
    tree.core.check()


@pytest.mark.rule("L-2")
def test_release_undoes_acquire_after_splits_between(sketch) -> None:
    """The node under a long lease is cut into pieces while it is out."""
    tree: Sketch = sketch(full=Full(), swa=Window(5))
    lease = tree.grow(tree.hold(), "abcdefgh", swa="********").lease
    for fork in ("abX", "abcdX", "abcdeX", "abcdefgX"):
        tree.put(fork)
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | full locks 0x1 | swa 0..2 [100 101]
          2..3 X | full 2..3 [10]
          2..4 cd | full 2..4 [2 3] | full locks 2x1 | swa 2..4 [102 103] | swa locks 3x1
            4..5 X | full 4..5 [15]
            4..5 e | full 4..5 [4] | full locks 4x1 | swa 4..5 [104] | swa locks 4x1
              5..6 X | full 5..6 [21]
              5..7 fg | full 5..7 [5 6] | full locks 5x1 | swa 5..7 [105 106] | swa locks 5x1
                7..8 X | full 7..8 [29]
                7..8 h leases 1 | full 7..8 [7] | full locks 7x1 | swa 7..8 [107] | swa locks 7x1
    """)
    tree.core.release(lease)
    assert "locks" not in tree.core.dump()
    tree.core.check()


@pytest.mark.rule("L-2", "T-5")
def test_two_windows_that_begin_in_one_node_are_both_cut_with_it(sketch) -> None:
    """The leases at 8 and 9 need the window from 5 and from 6 on; a path that leaves at 7 cuts both."""
    tree: Sketch = sketch(full=Full(), swa=Window(3))
    at_8 = tree.grow(tree.hold(), "abcdefgh", swa="********").lease
    at_9 = tree.grow(tree.hold("abcdefgh"), "i", swa="*").lease
    assert "swa locks 5x1 6x1" in tree.picture().splitlines()[0]
    tree.put("abcdefgX")
    upper, _, lower, _ = tree.picture().splitlines()
    assert "swa locks 5x1 6x1" in upper
    assert "swa locks 7x2" in lower
    tree.core.release(at_8)
    assert "swa locks 6x1" in tree.picture().splitlines()[0]
    tree.core.release(at_9)
    assert "locks" not in tree.picture()
    tree.core.check()


@pytest.mark.rule("L-2", "L-5")
@pytest.mark.parametrize("seed", range(4))
def test_after_all_releases_no_count_is_left(sketch, seed: int) -> None:
    """Long prompts, splits, tombstones and healings at random between acquire and release."""
    chance = random.Random(seed)
    tree: Sketch = sketch(full=Full(), swa=Window(6), state=Checkpoint())
    leases = []
    for _ in range(120):
        text = "".join(chance.choices("ab", k=chance.randint(1, 14)))
        holes = ["".join(chance.choices("*.", k=len(text))) for _ in range(2)]
        do = chance.randrange(4)
        if do == 0:
            tree.put(text, swa=holes[0], state=holes[1])
        elif do == 1:
            leases.append(tree.hold(text))
        elif do == 2 and leases:
            tree.core.release(leases.pop(chance.randrange(len(leases))))
        else:
            tree.core.evict(chance.choice(["full", "swa", "state"]), chance.randint(1, 5))
        tree.core.check()
    for lease in leases:
        tree.core.release(lease)
    assert "lock" not in tree.core.dump()
    assert [pool.leased_pages for pool in tree.core.stats().pools] == [0, 0, 0]
    tree.core.clear()
    assert tree.core.dump() == ""


@pytest.mark.rule("L-3")
def test_a_window_left_behind_is_let_go_and_leaves_before_the_rest(sketch) -> None:
    """After an early release the demand for window slots is met, and the path stays leased."""
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    lease = tree.grow(tree.hold(), "abcd", swa="..**", state="...*").lease
    assert tree.evict("swa", 9) == []
    tree.core.release_components(lease, ["swa"])
    assert tree.evict("swa", 9) == [100, 101]
    assert tree.evict("full", 9) == []
    assert tree.evict("state", 9) == []
    tree.core.release_components(lease, ["state", "swa"])
    assert tree.evict("state", 9) == [200], "and letting the window go a second time did nothing"
    tree.core.release(lease)
    assert tree.evict("full", 9) == [3, 2, 1, 0]


@pytest.mark.rule("L-3")
def test_an_unknown_name_lets_nothing_go(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    lease = tree.grow(tree.hold(), "ab", swa="**").lease
    with pytest.raises(ConfigError, match="nobody"):
        tree.core.release_components(lease, ["swa", "nobody"])
    assert "swa locks" in tree.picture()


@pytest.mark.rule("L-4")
def test_a_leased_node_is_kept_though_nothing_is_held_of_it(sketch) -> None:
    tree: Sketch = sketch(swa=Window(2))
    lease = tree.grow(tree.hold(), "abcd", swa="....").lease
    assert tree.picture() == "0..4 abcd leases 1 | swa locks 2x1"
    tree.core.clear()
    assert tree.picture() == "0..4 abcd leases 1 | swa locks 2x1"
    again = tree.grow(lease, "ef", swa=".*").lease
    assert again.boundary_tokens == 6
    tree.core.release(again)
    assert tree.picture() == drawn("""
        0..4 abcd
          4..6 ef | swa 5..6 [0]
    """)


@pytest.mark.rule("L-4", "E-3")
def test_a_running_request_at_a_leaf_is_no_victim_and_no_crash(sketch) -> None:
    """Asked for a state while the only one is in use, the answer is that nothing may go."""
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    lease = tree.grow(tree.hold(), "abcd", state="...*").lease
    tree.core.release_components(lease, ["full"])
    assert tree.core.evict("state", 1).slots == {}
    assert tree.core.evict("full", 1).slots == {}, "the path itself stays while the lease is out"
    tree.core.check()


@pytest.mark.rule("L-5")
def test_counters_are_what_walking_finds(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdef", swa="*.**.*")
    tree.hold("abcd")
    stats = tree.core.stats()
    assert (stats.path_pages, stats.leases) == (6, 1)
    full, swa = stats.pools
    assert (full.held_pages, full.leased_pages, full.dead_pages) == (6, 4, 2)
    assert (swa.held_pages, swa.leased_pages, swa.dead_pages) == (4, 2, 1)
    tree.core.check()
