"""S: sessions tell who is likely to come back, and to what; they protect nothing."""

from __future__ import annotations

import gc
import math

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError, StaleHandleError
from spec.sketch import Sketch, drawn


def sessions(tree: Sketch) -> int:
    return tree.core.stats().sessions


@pytest.mark.rule("S-1")
def test_a_session_has_one_handle_while_it_is_open_and_never_again(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    first = tree.core.open_session("a")
    assert tree.core.open_session("a", priority=2) == first
    other = tree.core.open_session("b")
    assert sessions(tree) == 2
    assert tree.core.close_session("a") is True
    assert tree.core.close_session("a") is False
    assert len({first, other, tree.core.open_session("a")}) == 3
    assert sessions(tree) == 2


@pytest.mark.rule("S-1")
def test_closing_takes_all_references_away(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcd", swa="..**", state="...*")
    before = tree.picture()
    tree.register("a", "abcd")
    assert tree.picture() == (
        "0..4 abcd sessions 1 | full 0..4 [0 1 2 3] | full references 0x1 | swa 2..4 [100 101]"
        " | swa references 2x1 | state 3..4 [200] | state references 3x1"
    )
    tree.core.check()
    tree.core.close_session("a")
    assert tree.picture() == before
    tree.core.check()


@pytest.mark.rule("S-1")
def test_one_session_too_many_closes_the_one_idle_longest(sketch) -> None:
    tree: Sketch = sketch(full=Full(), limits={"max_sessions": 2})
    tree.put("ab")
    for name in ("a", "b", "a", "c"):
        tree.register(name, "ab")
    assert sessions(tree) == 2
    assert [tree.core.close_session(name) for name in "abc"] == [True, False, True]
    assert "references" not in tree.core.dump()


@pytest.mark.rule("S-1", "S-2")
@pytest.mark.parametrize(
    ("hints", "named"),
    [
        ({"priority": -1}, "priority is -1"),
        ({"priority": 1 << 20}, "priority is 1048576"),
        ({"expected_return_s": -0.5}, "expected_return_s is -0.5"),
        ({"expected_return_s": math.inf}, "expected_return_s is inf"),
        ({"expected_return_s": math.nan}, "expected_return_s is nan"),
    ],
)
def test_a_hint_that_cannot_be_is_refused_and_opens_nothing(sketch, hints, named: str) -> None:
    tree: Sketch = sketch(full=Full())
    with pytest.raises(ConfigError, match=named):
        tree.core.open_session("a", **hints)
    assert sessions(tree) == 0


@pytest.mark.rule("S-1", "S-2")
@pytest.mark.parametrize(
    ("limits", "named"),
    [({"session_ttl_s": 0.0}, "session_ttl_s is 0.0"), ({"max_sessions": 0}, "max_sessions is 0")],
)
def test_limits_that_leave_no_session_are_refused(sketch, limits, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        sketch(full=Full(), limits=limits)


@pytest.mark.rule("S-2")
def test_what_was_idle_too_long_closes_the_longest_idle_first(sketch) -> None:
    tree: Sketch = sketch(full=Full(), limits={"session_ttl_s": 10.0})
    tree.put("ab")
    for second, name in enumerate("abcd"):
        assert tree.core.set_time(100.0 + second) == ()
        tree.register(name, "ab")
    tree.core.set_time(105.0)
    tree.core.open_session("a")
    tree.core.fork_session("b", "d")
    assert tree.core.set_time(111.0) == (), "exactly ten seconds are not too long"
    assert tree.core.set_time(115.0) == ("b", "c"), "forking renewed the target, not the source"
    assert tree.core.set_time(115.5) == ("a", "d")
    assert sessions(tree) == 0
    assert "references" not in tree.core.dump()


@pytest.mark.rule("S-2")
def test_time_never_goes_back(sketch) -> None:
    tree: Sketch = sketch(full=Full(), limits={"session_ttl_s": 10.0})
    tree.core.set_time(50.0)
    tree.core.open_session("a")
    assert tree.core.set_time(-1000.0) == ()
    assert tree.core.set_time(60.0) == ()
    assert tree.core.set_time(60.5) == ("a",)
    with pytest.raises(ConfigError, match="the time is nan"):
        tree.core.set_time(math.nan)


@pytest.mark.rule("S-3")
def test_a_reference_is_a_place_that_splits_cut_and_values_may_come_and_go(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(3))
    tree.put("abcdef", swa="...***")
    tree.register("a", "abcdef")
    tree.put("abcdX")
    assert tree.picture() == drawn("""
        0..4 abcd | full 0..4 [0 1 2 3] | full references 0x1 | swa 3..4 [100] | swa references 3x1
          4..5 X | full 4..5 [10]
          4..6 ef sessions 1 | full 4..6 [4 5] | full references 4x1 | swa 4..6 [101 102] | swa references 4x1
    """)
    assert sorted(tree.evict("swa", 9)) == [100, 101, 102], "a reference pins nothing"
    assert "swa references 3x1" in tree.picture()
    tree.core.check()


@pytest.mark.rule("S-3", "S-4")
def test_the_frontier_moves_on_and_what_it_leaves_behind_weighs_nothing(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint(), policy="session")
    tree.put("ab", swa="**", state=".*")
    tree.register("a", "ab")
    lease = tree.grow(tree.hold("ab"), "cd", swa="**", state=".*").lease
    tree.core.register(tree.core.open_session("a"), lease)
    tree.core.release(lease)
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | full references 0x1 | swa 0..2 [100 101] | state 1..2 [200]
          2..4 cd sessions 1 | full 2..4 [2 3] | full references 2x1 | swa 2..4 [102 103]\
 | swa references 2x1 | state 3..4 [201] | state references 3x1
    """)
    tree.use("ab")
    assert tree.evict("state", 1) == [200], "used last, but no session needs it"
    tree.core.check()


@pytest.mark.rule("S-4")
def test_who_finishes_late_opens_nothing(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("ab")
    handle, lease = tree.core.open_session("a"), tree.hold("ab")
    tree.core.close_session("a")
    tree.core.open_session("a")
    before = tree.core.dump()
    assert tree.core.register(handle, lease) is False
    assert (tree.core.dump(), sessions(tree)) == (before, 1)
    tree.core.release(lease)
    with pytest.raises(StaleHandleError):
        tree.core.register(handle, lease)


@pytest.mark.rule("S-4")
def test_a_lease_of_the_empty_prefix_leaves_no_frontier(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    tree.put("ab")
    tree.register("a", "ab")
    assert tree.register("a") is True
    assert tree.picture() == "0..2 ab | full 0..2 [0 1]"


@pytest.mark.rule("S-5")
def test_references_leave_with_the_pages_and_the_frontier_moves_up(sketch) -> None:
    """The tail is cut page by page, then the node goes; what comes back later is not referenced."""
    tree: Sketch = sketch(full=Full(), swa=Window(3), state=Checkpoint())
    tree.put("ab", swa="**", state=".*")
    lease = tree.grow(tree.hold("ab"), "cdef", swa="****", state="...*").lease
    tree.core.register(tree.core.open_session("a"), lease)
    tree.core.release(lease)
    tree.evict("full", 2)
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | full references 0x1 | swa 0..2 [100 101] | state 1..2 [200]
          2..4 cd sessions 1 | full 2..4 [2 3] | full references 2x1 | swa 2..4 [102 103] | swa references 3x1
    """)
    tree.core.check()
    tree.evict("full", 2)
    assert tree.picture() == (
        "0..2 ab sessions 1 | full 0..2 [0 1] | full references 0x1 | swa 0..2 [100 101] | state 1..2 [200]"
    )
    tree.put("abcdef", swa="..****", state=".....*")
    assert tree.picture().count("references") == 1
    tree.core.check()
    tree.core.clear()
    assert (tree.core.dump(), sessions(tree)) == ("", 1)
    tree.core.check()


@pytest.mark.rule("S-6")
def test_a_fork_takes_the_frontier_and_both_go_on_apart(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcd", swa="****")
    tree.put("XY", swa="**")
    tree.register("b", "XY")
    tree.register("a", "abcd")
    handle = tree.core.fork_session("a", "b")
    assert handle == tree.core.open_session("b")
    assert "sessions 2 | full 0..4 [0 1 2 3] | full references 0x2" in tree.picture()
    assert "0..2 XY | full" in tree.picture(), "and its own frontier is gone"
    tree.register("a", "ab")
    _, upper, lower = tree.picture().splitlines()
    assert upper.startswith("0..2 ab sessions 1 | full 0..2 [0 1] | full references 0x2 | swa")
    assert lower.startswith("  2..4 cd sessions 1 | full 2..4 [2 3] | full references 2x1 | swa")
    assert (upper[-15:], lower[-15:]) == (" references 0x1", " references 2x1")
    tree.core.close_session("a")
    assert sessions(tree) == 1
    with pytest.raises(ConfigError, match="no session is named 'a'"):
        tree.core.fork_session("a", "c")
    tree.core.check()


@pytest.mark.rule("S-6", "S-1")
def test_a_fork_at_the_limit_may_close_its_source(sketch) -> None:
    tree: Sketch = sketch(full=Full(), limits={"max_sessions": 1})
    tree.put("ab")
    tree.register("a", "ab")
    tree.core.fork_session("a", "b")
    assert tree.picture() == "0..2 ab sessions 1 | full 0..2 [0 1] | full references 0x1"
    assert [tree.core.close_session(name) for name in "ab"] == [False, True]


@pytest.mark.rule("S-7")
def test_the_largest_priority_counts_and_stays(sketch) -> None:
    tree: Sketch = sketch(state=Checkpoint(), policy="priority")
    for text in "abc":
        tree.put(text, state="*")
    tree.register("important", "a", priority=5)
    tree.register("other", "a", priority=1)
    tree.register("other", "b", priority=1)
    tree.core.close_session("important")
    tree.use("c")
    assert tree.evict("state", 3) == [2, 1, 0]


@pytest.mark.rule("S-7", "P-4")
def test_a_run_whose_session_is_expected_is_spared_once(sketch) -> None:
    tree: Sketch = sketch(state=Checkpoint(), policy="cost")
    for text in "abc":
        tree.put(text, state="*")
    tree.register("a", "a", expected_return_s=30.0)
    tree.register("b", "b", expected_return_s=10.0)
    tree.register("c", "c")
    tree.core.set_time(20.0)
    assert tree.evict("state", 1) == [1], "a is expected, b is overdue"
    assert sorted(tree.evict("state", 9)) == [0, 2]


@pytest.mark.rule("S-8")
def test_sessions_that_never_come_back_leave_no_growth(core_type) -> None:
    """Many sessions, each with a path of its own that leaves: books, memory and dump are as before."""
    tree = Sketch(core_type, {"full": Full(), "swa": Window(2)}, session_ttl_s=1.0, max_sessions=500)

    def crowd(first: int) -> None:
        for number in range(first, first + 1500):
            tree.core.set_time(number / 500)
            tree.put("abc"[: 1 + number % 3], swa="**"[: 1 + number % 3].ljust(1 + number % 3, "."))
            tree.register(f"s{number}", "abc")
        tree.core.set_time(1e6 + first)
        tree.core.clear()
        gc.collect()

    crowd(0)
    assert (sessions(tree), tree.core.dump()) == (0, "")
    before = len(gc.get_objects())
    crowd(10_000_000)
    tree.core.take_events()
    assert len(gc.get_objects()) - before < 500
    tree.core.check()
