"""L: claims protect any place of a known path; holdings tell what is there."""

from __future__ import annotations

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import ConfigError, StaleHandleError
from graftline.plan import Held
from spec.sketch import Sketch, drawn


def plain(held: dict[str, tuple[Held, ...]]) -> dict[str, list[tuple[int, list[int]]]]:
    return {name: [(run.first_page, run.slots.tolist()) for run in runs] for name, runs in held.items()}


@pytest.mark.rule("L-6")
def test_a_claim_protects_a_boundary_that_is_not_valid_and_counts_no_use(sketch) -> None:
    """Nothing agrees at 5: no state, and a hole in the window; the claim cuts there and locks the places."""
    tree: Sketch = sketch(full=Full(), swa=Window(3), state=Checkpoint())
    tree.put("abcdefgh", swa="...*.***", state=".......*")
    before = tree.picture(ticks=True)
    assert "@1" in before
    lease = tree.claim("abcdefgh", 5)
    assert tree.picture(ticks=True) == drawn("""
        0..4 abcd | full 0..4 [0 1 2 3] @1 | full locks 0x1 | swa 3..4 [100] @3 | swa locks 2x1
          4..5 e leases 1 | full 4..5 [4] @2 | full locks 4x1 | swa locks 4x1 | state locks 4x1
            5..8 fgh | full 5..8 [5 6 7] @2 | swa 5..8 [101 102 103] @4 | state 7..8 [200] @5
    """)
    assert plain({name: (run,) for name, run in lease.held.items()}) == {
        "full": [(0, [0, 1, 2, 3, 4])],
        "swa": [(5, [])],
        "state": [(5, [])],
    }
    assert tree.evict("swa", 9) == [101, 102, 103], "all but the one that the claim protects"
    assert tree.evict("full", 9) == [7, 6, 5]
    tree.core.release(lease)
    assert tree.evict("full", 9) == [4, 3, 2, 1, 0]
    assert tree.core.dump() == ""


@pytest.mark.rule("L-6", "N-1")
def test_an_insertion_grows_from_a_claim_and_heals_what_lies_behind_it(sketch) -> None:
    """How values come back from another tier: claim where the window begins, insert it, hold its end."""
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdef", swa="......")
    assert tree.hit("abcdef") == 0
    claim = tree.claim("abcdef", 4)
    done = tree.grow(claim, "ef", full="..", swa="**")
    assert done.lease.boundary_tokens == 6
    assert done.lease.held["swa"].slots.tolist() == [100, 101]
    assert tree.hit("abcdef") == 6
    tree.core.release(done.lease)
    tree.core.check()


@pytest.mark.rule("L-6")
def test_a_claim_of_the_empty_prefix_needs_no_path(sketch) -> None:
    tree: Sketch = sketch(full=Full())
    lease = tree.claim("never seen", 0)
    assert tree.picture() == "0..0 root leases 1"
    tree.core.release(lease)
    assert tree.core.dump() == ""


@pytest.mark.rule("L-6", "T-6")
def test_a_claim_survives_splits_above_the_match_and_is_refused_where_the_path_is_gone(sketch) -> None:
    tree: Sketch = sketch(full=Full(), swa=Window(2))
    tree.put("abcdefgh", swa="......**")
    found = tree.find("abcdef")
    assert found.boundary_tokens == 0
    tree.put("abX", swa="..*")
    lease = tree.core.claim(found, 2)
    assert tree.picture().splitlines()[0].startswith("0..2 ab leases 1")
    tree.core.release(lease)
    tree.evict("full", 5)
    before = tree.core.dump()
    with pytest.raises(StaleHandleError, match="match again"):
        tree.core.claim(found, 6)
    with pytest.raises(StaleHandleError, match="match again"):
        tree.core.holdings(found, 6)
    assert tree.core.dump() == before


@pytest.mark.rule("L-6", "L-7")
@pytest.mark.parametrize("boundary", [-2, 1, 3, 6])
def test_a_place_that_is_no_page_boundary_of_the_path_is_an_error(sketch, boundary: int) -> None:
    tree: Sketch = sketch(full=Full(), page_tokens=2)
    tree.put("abcd")
    found = tree.find("abcdef")
    for operation in (tree.core.claim, tree.core.holdings):
        with pytest.raises(
            ConfigError, match=f"boundary {boundary} is not a multiple of 2 tokens between 0 and 4"
        ):
            operation(found, boundary)


@pytest.mark.rule("L-7")
def test_holdings_are_all_runs_before_the_boundary_and_change_nothing(sketch) -> None:
    """Runs are joined over nodes; what the boundary itself does not need is told too."""
    tree: Sketch = sketch(full=Full(), swa=Window(6), state=Checkpoint())
    tree.put("abcdefgh", swa="***.**.*", state="...*...*")
    tree.put("abcdeX", swa=".....*")
    before = tree.core.dump()
    found = tree.find("abcdefgh")
    assert plain(tree.core.holdings(found, 8)) == {
        "full": [(0, [0, 1, 2, 3, 4, 5, 6, 7])],
        "swa": [(0, [100, 101, 102]), (4, [103, 104]), (7, [105])],
        "state": [(3, [200]), (7, [201])],
    }
    assert plain(tree.core.holdings(found, 3)) == {
        "full": [(0, [0, 1, 2])],
        "swa": [(0, [100, 101, 102])],
        "state": [],
    }
    assert plain(tree.core.holdings(found, 0)) == {"full": [], "swa": [], "state": []}
    assert tree.core.dump() == before
