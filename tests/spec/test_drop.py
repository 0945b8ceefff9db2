"""E: a state that its owner knows to be superseded leaves before its turn."""

from __future__ import annotations

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError, StaleHandleError
from spec.sketch import HERE, Sketch, drawn, slots_of


def dropped(tree: Sketch, lease, boundary: int) -> list[int]:
    freed = tree.core.drop(lease, "state", boundary)
    assert set(freed.slots) <= {"state"}
    return slots_of(freed, "state")


@pytest.mark.rule("E-9")
def test_a_state_leaves_and_its_boundary_is_not_valid_any_more(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state=".*...*")
    lease = tree.hold("abcdef")
    assert tree.hit("ab") == 2
    tree.core.take_events()
    assert dropped(tree, lease, 2) == [100]
    (event,) = tree.core.take_events()
    assert (event.kind, event.component, event.first_page, event.reason) == (
        "removed",
        "state",
        1,
        "evicted",
    )
    found = tree.find("ab")
    assert (found.boundary_tokens, found.path_tokens, found.limited_by) == (0, 2, "state")
    assert found.reason == "evicted"
    assert tree.hit("abcdef") == 6
    assert dropped(tree, lease, 2) == [], "nothing is held there any more"
    tree.core.check()


@pytest.mark.rule("E-9", "T-3")
@pytest.mark.parametrize(
    ("boundary", "runs"),
    [(2, "state 2..5"), (5, "state 1..4"), (3, "state 1..2"), (4, "state 1..3")],
)
def test_a_run_of_states_is_cut_where_one_leaves(sketch, boundary: int, runs: str) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdefg", state=".****.*")
    lease = tree.hold("abcdefg")
    tree.core.release_components(lease, ["state"])
    assert dropped(tree, lease, boundary) == [100 + boundary - 2]
    tree.core.check()
    assert runs in tree.picture()
    assert [tree.hit("abcdefg"[:end]) for end in range(2, 6)] == [
        max((b for b in range(2, end + 1) if b != boundary), default=0) for end in range(2, 6)
    ]


@pytest.mark.rule("E-9")
def test_what_a_lease_protects_stays(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state="...*.*")
    lease, other = tree.hold("abcdef"), tree.hold("abcd")
    assert dropped(tree, lease, 6) == [], "the lease's own boundary"
    assert dropped(tree, lease, 4) == [], "another one's"
    tree.core.release(other)
    assert dropped(tree, lease, 4) == [100]
    tree.core.release_components(lease, ["state"])
    assert dropped(tree, lease, 6) == [101]
    assert tree.hit("abcdef") == 0


@pytest.mark.rule("E-9")
def test_what_a_session_refers_to_stays_until_it_goes_on(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state=".*.*.*")
    tree.register("a", "ab")
    tree.register("b", "abcd")
    lease = tree.hold("abcdef")
    assert [dropped(tree, lease, boundary) for boundary in (2, 4)] == [[], []]
    session = tree.core.open_session("a")
    assert tree.core.register(session, lease)
    assert [dropped(tree, lease, boundary) for boundary in (2, 4)] == [[100], []]
    assert tree.core.close_session("b")
    assert dropped(tree, lease, 4) == [101]


@pytest.mark.rule("E-9")
def test_a_state_where_paths_part_stays(sketch) -> None:
    tree: Sketch = sketch(full=Full(), state=Checkpoint())
    tree.put("abcdef", state=".*.*.*")
    tree.put("abxy", state="...*")
    lease = tree.hold("abcdef")
    assert dropped(tree, lease, 2) == []
    assert dropped(tree, lease, 4) == [101]
    assert tree.picture() == drawn("""
        0..2 ab | full 0..2 [0 1] | full locks 0x1 | state 1..2 [100]
          2..4 cd | full 2..4 [2 3] | full locks 2x1
            4..6 ef leases 1 | full 4..6 [4 5] | full locks 4x1 | state 5..6 [102] | state locks 5x1
          2..4 xy | full 2..4 [8 9] | state 3..4 [103]
    """)


@pytest.mark.rule("E-9")
def test_pages_that_only_that_state_made_usable_are_dead_then(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa="..**..**", state="...*...*")
    assert tree.core.stats().pools[1].dead_pages == 0
    lease = tree.hold("abcdefgh")
    assert dropped(tree, lease, 4) == [200]
    assert tree.core.stats().pools[1].dead_pages == 2
    assert tree.evict("swa", 1) == [100]
    tree.core.check()


@pytest.mark.rule("E-9", "E-1")
def test_a_dead_state_is_counted_as_one(sketch) -> None:
    """Without its window no boundary can use it."""
    tree: Sketch = sketch(full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdefgh", swa="......**", state="...*...*")
    lease = tree.hold("abcdefgh")
    freed = tree.core.drop(lease, "state", 4)
    assert (slots_of(freed, "state"), freed.dead_pages) == ([200], {"state": 1})
    assert tree.core.take_events()[-1].reason == "dead"


@pytest.mark.rule("E-9")
def test_what_cannot_be_dropped_is_refused(sketch) -> None:
    tree: Sketch = sketch(page_tokens=2, full=Full(), swa=Window(2), state=Checkpoint())
    tree.put("abcdef", swa="***", state="***")
    lease = tree.hold("abcd")
    before = tree.core.dump()
    for name in ("full", "swa"):
        with pytest.raises(ConfigError, match=f"component '{name}' holds no states"):
            tree.core.drop(lease, name, 2)
    with pytest.raises(ConfigError, match="no component is named 'nobody'"):
        tree.core.drop(lease, "nobody", 2)
    for boundary in (-2, 0, 1, 3, 6):
        with pytest.raises(ConfigError, match=f"boundary {boundary} is not a multiple of 2 tokens between"):
            tree.core.drop(lease, "state", boundary)
    empty = tree.hold()
    with pytest.raises(ConfigError, match="boundary 2 is not"):
        tree.core.drop(empty, "state", 2)
    assert tree.core.match(HERE, [1]).boundary_tokens == 0
    tree.core.release(empty)
    assert tree.core.dump() == before
    tree.core.release(lease)
    with pytest.raises(StaleHandleError):
        tree.core.drop(lease, "state", 2)
