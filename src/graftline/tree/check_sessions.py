"""The part of check() that is about sessions: references, frontiers, and what policies were told."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from graftline.errors import IntegrityError
from graftline.tree.sessions import referenced_nodes
from graftline.tree.state import State, holding_of


def check_sessions(state: State) -> None:
    """Raises `IntegrityError` with the rule's number when something about sessions contradicts itself."""
    check_records(state)
    check_frontiers(state)
    check_references(state)
    check_told(state)


def check_records(state: State) -> None:
    """S-1, S-2: every session is found by its handle, and they are in the order of their idle time."""
    if state.names != {record.handle: name for name, record in state.sessions.items()}:
        raise IntegrityError(
            "S-1", f"handles {state.names} are not those of the sessions {list(state.sessions)}"
        )
    if len(state.sessions) > state.max_sessions:
        raise IntegrityError("S-1", f"{len(state.sessions)} sessions are open, {state.max_sessions} may be")
    times = [record.last_s for record in state.sessions.values()]
    if any(later < earlier for earlier, later in pairwise([*times, state.now_s])):
        raise IntegrityError("S-2", f"sessions were last used at {times}, it is {state.now_s}")


def check_frontiers(state: State) -> None:
    """S-5: a frontier is the end of a node of the tree, not deeper than what was registered."""
    ends: dict[int, set[str]] = {}
    for name, record in state.sessions.items():
        if record.node is None:
            continue
        if state.nodes.get(record.node.ident) is not record.node or record.node.end > record.boundary:
            raise IntegrityError("S-5", f"session '{name}' ends at node {record.node.ident}, which is gone")
        ends.setdefault(record.node.ident, set()).add(name)
    kept = {node.ident: set(node.sessions) for node in state.nodes.values() if node.sessions}
    if kept != ends:
        raise IntegrityError("S-5", f"nodes name the sessions {kept}, found {ends}")


def check_references(state: State) -> None:
    """S-3: references are those of the sessions that are open."""
    references: Counter[tuple[int, int, int]] = Counter()
    for record in state.sessions.values():
        for component in range(len(state.specs)):
            first = state.first_page(component, record.boundary)
            for node in referenced_nodes(state, record.node, component, record.boundary):
                references[node.ident, component, max(first, node.start)] += 1
    kept = Counter(
        {
            (node.ident, component, first): count
            for node in state.nodes.values()
            for component in range(len(state.specs))
            for first, count in holding_of(node, component).references.items()
        }
    )
    if kept != references:
        too_many, missing = kept - references, references - kept
        raise IntegrityError("S-3", f"references {too_many} are too many, {missing} are missing")


def check_told(state: State) -> None:
    """P-3: policies were told the number of sessions."""
    for node in state.nodes.values():
        for component, spec in enumerate(state.specs):
            holding = holding_of(node, component)
            told = holding.usage.sessions
            if len(holding.slots) and (holding.usage.stale or told != holding.sessions()):
                found = f"'{spec.name}' of node {node.ident} has {holding.sessions()} sessions"
                raise IntegrityError("P-3", f"{found}, the policy was told {told}")
