"""check() of the readable core finds each kind of damage and names the rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graftline.components import Checkpoint, Full, Window
from graftline.errors import IntegrityError
from graftline.tree import PythonCore
from graftline.tree.node import Node
from graftline.tree.state import SessionRecord, State, holding_of
from spec.sketch import Sketch

FULL, SWA, STATE = 0, 1, 2


def tree() -> Sketch:
    """
    0..2 ab       full swa state
      2..6 cdef   full swa
      2..5 XYZ    full swa state leased, and the frontier of a session
    """
    sketch = Sketch(PythonCore, {"full": Full(), "swa": Window(2), "state": Checkpoint()})
    sketch.put("abcdef", swa="******", state=".*....")
    done = sketch.grow(sketch.hold("ab"), "XYZ", swa="***", state="..*")
    sketch.core.register(sketch.core.open_session("one"), done.lease)
    sketch.core.open_session("other")
    sketch.core.check()
    return sketch


def node_at(state: State, start: int, end: int) -> Node:
    (found,) = (node for node in state.nodes.values() if (node.start, node.end) == (start, end))
    return found


def ab(state: State) -> Node:
    return node_at(state, 0, 2)


def leased(state: State) -> Node:
    return node_at(state, 2, 5)


def leaf(state: State) -> Node:
    return node_at(state, 2, 6)


def shift(node: Node) -> None:
    node.start += 1


def lose_child(node: Node) -> None:
    node.children.popitem()


def swap_children(node: Node) -> None:
    node.children = dict(zip(node.children, reversed(node.children.values()), strict=True))


def give(node: Node, component: int, first: int, slots: list[int]) -> None:
    holding = holding_of(node, component)
    holding.first, holding.slots = first, holding.slots[:0].copy()
    holding.slots = type(holding.slots)((len(slots),), dtype=holding.slots.dtype)
    holding.slots[:] = slots


def empty(node: Node) -> None:
    for component in (FULL, SWA, STATE):
        give(node, component, node.start, [])


def first_session(state: State) -> SessionRecord:
    return state.sessions["one"]


DAMAGE: dict[str, tuple[str, Callable[[State], object]]] = {
    "a node moved": ("T-1", lambda state: shift(leaf(state))),
    "a page of path not counted": ("T-1", lambda state: setattr(state, "path_pages", state.path_pages - 1)),
    "children under each other's names": ("T-2", lambda state: swap_children(ab(state))),
    "a run outside its node": ("T-3", lambda state: give(leaf(state), SWA, 1, [7, 8])),
    "an empty leaf": ("T-4", lambda state: empty(leaf(state))),
    "a prefix-closed component with a hole": ("T-7", lambda state: give(leaf(state), FULL, 2, [1, 2, 3])),
    "a slot held twice": ("T-8", lambda state: holding_of(leaf(state), SWA).slots.__setitem__(0, 100)),
    "a lock too many": ("L-2", lambda state: holding_of(leased(state), SWA).locks.update({3: 2})),
    "a lock missing": ("L-2", lambda state: holding_of(ab(state), FULL).locks.clear()),
    "a lease that nobody has": ("L-2", lambda state: setattr(leased(state), "leases", 2)),
    "a held page not counted": ("L-5", lambda state: setattr(state.counters[SWA], "held", 0)),
    "a leased page not counted": ("L-5", lambda state: setattr(state.counters[FULL], "leased", 1)),
    "a dead page not counted": ("L-5", lambda state: setattr(state.counters[SWA], "dead", 0)),
    "a boundary forgotten": ("E-1", lambda state: setattr(ab(state), "deepest", 0)),
    "a boundary below forgotten": ("E-1", lambda state: setattr(ab(state), "below", 0)),
    "a candidate forgotten": ("E-6", lambda state: state.candidates[SWA].clear()),
    "a candidate that may not leave": (
        "E-6",
        lambda state: setattr(holding_of(leased(state), FULL), "version", 999),
    ),
    "a handle of no session": ("S-1", lambda state: state.names.popitem()),
    "a session too many": ("S-1", lambda state: setattr(state, "max_sessions", 1)),
    "a session out of order": ("S-2", lambda state: setattr(first_session(state), "last_s", 9.0)),
    "a frontier that is gone": ("S-5", lambda state: leased(state).sessions.clear()),
    "a frontier too deep": ("S-5", lambda state: setattr(first_session(state), "boundary", 4)),
    "a reference too many": ("S-3", lambda state: holding_of(leaf(state), SWA).references.update({4: 1})),
    "a reference missing": ("S-3", lambda state: holding_of(ab(state), FULL).references.clear()),
    "a policy not told": ("P-3", lambda state: setattr(holding_of(ab(state), FULL).usage, "sessions", 7)),
    "a count of candidates": ("E-6", lambda state: state.live_candidates.__setitem__(SWA, 0)),
}


@pytest.mark.rule("L-5", "D-2")
@pytest.mark.parametrize("damage", DAMAGE)
def test_check_finds_damage_and_names_the_rule(damage: str) -> None:
    rule, harm = DAMAGE[damage]
    sketch = tree()
    harm(sketch.core._state)
    with pytest.raises(IntegrityError) as caught:
        sketch.core.check()
    assert caught.value.rule == rule
