"""Insert: a request's values become part of the tree (rules N-1 to N-6).

Who owns a slot afterwards, for each page given:

    page not held by the component    the tree: adopted (a tombstone is healed)
    page already held                 the caller, as before: a duplicate
    page given by nobody              stays a hole (a tombstone)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graftline.key import Tokens
from graftline.plan import Held, Insertion, Lease
from graftline.tree.events import record_stored
from graftline.tree.lease import open_lease, release
from graftline.tree.liveness import reconsider, reconsider_below
from graftline.tree.node import Node
from graftline.tree.split import prune, split
from graftline.tree.state import State, holding_of, path_up
from graftline.tree.usage import holds_any, touch
from graftline.tree.values import Values, attach, check_values, missing_closed


def insert(
    state: State,
    grown_from: Lease,
    tokens: Tokens,
    values: Mapping[str, Sequence[Held]],
    move_lease: bool,
) -> Insertion:
    """Adds the pages after a lease's boundary. Cost: O(new tokens), not of the path before them.

    Args:
        grown_from: lease at whose boundary `tokens` start.
        tokens: token ids after that boundary; a rest of less than a page is left out.
        values: per component the pages that the caller has, places counted from the start of the prefix.
        move_lease: release the lease and take one at the end of the inserted path instead.

    Raises:
        ConfigError: pages outside the inserted path, overlapping, or missing for a prefix-closed component.
    """
    record = state.lease_record(grown_from.handle)
    start = record.boundary
    pages = len(tokens) // state.page_tokens
    tokens = tokens[: pages * state.page_tokens]
    given = check_values(state, values, start, start + pages)
    bottom, known = follow(state, record.node, tokens)
    missing_closed(state, given, start + known, start + pages)
    bottom = grow(state, bottom, tokens, known, start)
    result = adopt(state, bottom, start, given)
    while bottom.start >= start + pages and bottom.parent is not None:  # split at the end of the path
        bottom = bottom.parent
    if (
        move_lease and bottom.end > start + pages
    ):  # before the use is counted: what lies deeper has no part in it
        bottom = split(state, bottom, start + pages)
    settle(state, bottom, start, start + pages, result.adopted)
    lease = grown_from
    if move_lease:
        lease = open_lease(state, bottom, start + pages)
        release(state, grown_from.handle)
    else:
        prune(state, bottom)
    return Insertion(
        boundary_tokens=(start + pages) * state.page_tokens,
        new_pages=pages - known,
        adopted=named(state, result.adopted),
        duplicates=named(state, result.duplicates),
        lease=lease,
    )


def follow(state: State, node: Node, tokens: Tokens) -> tuple[Node, int]:
    """Deepest node that shares pages with `tokens`, and how many pages of them are known. Changes nothing."""
    known = 0
    while len(tokens) > known * state.page_tokens:
        rest = tokens[known * state.page_tokens :]
        child = node.children.get(state.child_key(rest))
        if child is None:
            break
        common = state.common_pages(child, rest)
        known, node = known + common, child
        if common < child.pages:
            break
    return node, known


def grow(state: State, bottom: Node, tokens: Tokens, known: int, start: int) -> Node:
    """Makes the rest of the path below `bottom`, where the tree knows only `known` pages of it."""
    rest = tokens[known * state.page_tokens :]
    if not len(rest):
        return bottom
    if bottom.end > start + known:
        bottom = split(state, bottom, start + known)
    return state.add_leaf(bottom, rest)


class Adoption:
    """What became of the pages given, by component."""

    __slots__ = ("adopted", "duplicates")

    def __init__(self, components: int) -> None:
        self.adopted: list[list[Held]] = [[] for _ in range(components)]
        self.duplicates: list[list[Held]] = [[] for _ in range(components)]


def adopt(state: State, bottom: Node, start: int, given: Values) -> Adoption:
    """Offers every page given to the nodes of the path.

    Shallow runs come first, so that a node is cut only where a gap remains (rule T-3).
    """
    result = Adoption(len(state.specs))
    for component, runs in enumerate(given):
        for run in runs:
            node = bottom
            while node.parent is not None and node.end > max(run.first_page, start):
                node = adopt_in_node(state, node, component, run, result)
                assert node.parent is not None
                node = node.parent
        result.adopted[component].sort(key=first_page_of)
        result.duplicates[component].sort(key=first_page_of)
    return result


def first_page_of(run: Held) -> int:
    """Where a run starts."""
    return run.first_page


def adopt_in_node(state: State, node: Node, component: int, run: Held, result: Adoption) -> Node:
    """Adopts the part of `run` that lies in `node`; returns the node from which to go on upward."""
    first, last = max(run.first_page, node.start), min(run.end_page, node.end)
    if first >= last:
        return node
    holding = holding_of(node, component)
    low, high = (holding.first, holding.end) if len(holding.slots) else (last, last)
    pieces = (
        (max(first, high), last, True),
        (max(first, low), min(last, high), False),
        (first, min(last, low), True),
    )
    for begin, end, is_new in pieces:
        if begin >= end:
            continue
        part = Held(begin, run.slots[begin - run.first_page : end - run.first_page])
        if not is_new:
            result.duplicates[component].append(part)
            continue
        node = attach(state, node, component, part)
        result.adopted[component].append(part)
        state.count_held(node, component, len(part.slots))
        record_stored(state, node, component, part)
    return node


def settle(state: State, bottom: Node, start: int, end: int, fresh: Values) -> None:
    """Finds the boundaries of the path again, from the top down, and counts the use."""
    path = [node for node in path_up(bottom) if node.end > start]
    for node in reversed(path):
        reconsider(state, node)
    for node in reversed(path):
        for component in range(len(state.specs)):
            if not state.closed(component) and holds_any(holding_of(node, component), fresh[component]):
                reconsider_below(state, node, component, node.end - 1)
    touch(state, bottom, end, fresh)


def named(state: State, runs: list[list[Held]]) -> dict[str, tuple[Held, ...]]:
    """Runs by the component's name, the empty ones left out."""
    return {spec.name: tuple(runs[index]) for index, spec in enumerate(state.specs) if runs[index]}
