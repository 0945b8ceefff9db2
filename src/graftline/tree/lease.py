"""Leases: protection of exactly the pages that a boundary needs (rules L-1 to L-5).

A lock is a place, not a receipt: component `c` of a lease at boundary `b` protects the pages
`[first_page(b), b)`, whatever is or will be held there. So release undoes acquire exactly, however
often the nodes between were split, emptied or healed.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graftline.errors import StaleHandleError
from graftline.key import Namespace
from graftline.plan import Held, Lease, Match
from graftline.tree.boundaries import deepest_agreed
from graftline.tree.liveness import rank_holding
from graftline.tree.node import NO_SLOTS, Node
from graftline.tree.split import prune, split
from graftline.tree.state import LeaseRecord, State, holding_of, path_up
from graftline.tree.usage import touch


def lease(state: State, found: Match) -> Lease:
    """Protects the boundary of a match and counts a use of it.

    Splits the node in which the boundary lies. Cost: O(nodes that the boundary needs).

    Raises:
        StaleHandleError: the match is out of date: its boundary is not valid any more.
    """
    boundary = found.boundary_tokens // state.page_tokens
    if boundary == 0:
        return open_lease(state, state.root(found.namespace), 0)
    node = state.node(found.node)
    while node.start >= boundary and node.parent is not None:  # split since the match
        node = node.parent
    everyone = range(len(state.specs))
    if node.end < boundary or deepest_agreed(state, node, everyone, boundary) != boundary:
        raise StaleHandleError(
            f"boundary {found.boundary_tokens} is not valid any more", hint="values were evicted; match again"
        )
    if node.end > boundary:
        node = split(state, node, boundary)
    granted = open_lease(state, node, boundary)
    touch(state, node, boundary)
    return granted


def open_root(state: State, namespace: Namespace) -> Lease:
    """A lease of the empty prefix, from which a new path can grow."""
    return open_lease(state, state.root(namespace), 0)


def open_lease(state: State, node: Node, boundary: int) -> Lease:
    """Locks what `boundary`, the end of `node`, needs of every component."""
    everyone = set(range(len(state.specs)))
    for component in everyone:
        lock(state, node, component, boundary, +1)
    node.leases += 1
    for component in everyone:
        rank_holding(state, node, component)
    record = LeaseRecord(node, boundary, everyone)
    handle = state.next_ident()
    state.leases[handle] = record
    held = {spec.name: held_pages(state, node, index, boundary) for index, spec in enumerate(state.specs)}
    return Lease(handle, boundary * state.page_tokens, held)


def lock(state: State, node: Node, component: int, boundary: int, change: int) -> None:
    """Adds or takes back one lock on the pages that `boundary` needs of a component."""
    first = state.first_page(component, boundary)
    for step in path_up(node):
        if step.end <= first:
            break
        locks = holding_of(step, component).locks
        place = max(first, step.start)
        count = locks.get(place, 0) + change
        assert count >= 0, f"L-2: lock count of page {place} would be {count}"
        if count:
            locks[place] = count
        else:
            del locks[place]
        rank_holding(state, step, component)


def held_pages(state: State, node: Node, component: int, boundary: int) -> Held:
    """Slots of the pages that a boundary needs of a component, as far back from it as there is no gap."""
    first = state.first_page(component, boundary)
    parts = []
    for step in path_up(node):
        holding = holding_of(step, component)
        if step.end <= first or len(holding.slots) == 0 or holding.end != step.end:
            break
        parts.append(holding.slots[max(0, first - holding.first) :])
        if holding.first > step.start:
            break
    slots = np.concatenate(parts[::-1]) if parts else NO_SLOTS
    return Held(boundary - len(slots), slots)


def release(state: State, handle: int) -> None:
    """Gives a lease back. Cost: O(nodes that the boundary needs)."""
    record = state.lease_record(handle)
    release_components(state, handle, [spec.name for spec in state.specs])
    del state.leases[handle]
    node = record.node
    node.leases -= 1
    for component in range(len(state.specs)):
        rank_holding(state, node, component)
    prune(state, node)


def release_components(state: State, handle: int, names: Iterable[str]) -> None:
    """Lets some components of a lease go early: a window left behind, a checkpoint copied (rule L-3)."""
    record = state.lease_record(handle)
    for component in [state.component(name) for name in names]:
        if component in record.components:
            record.components.remove(component)
            lock(state, record.node, component, record.boundary, -1)
