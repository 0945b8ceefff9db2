"""Claim: protection of any boundary of a known path, for moving values between tiers (rules L-6, L-7).

A move begins where a match cannot lead: at a boundary that is not valid here and will become so by the
move, or of which only some pages are wanted. A claim is a lease like any other, so nothing under a
transfer can leave, and an insertion can grow from it.
"""

from __future__ import annotations

from graftline.errors import ConfigError, StaleHandleError
from graftline.plan import Held, Lease, Match
from graftline.tree.lease import open_lease
from graftline.tree.node import Node
from graftline.tree.split import split
from graftline.tree.state import State, holding_of, path_up
from graftline.tree.values import joined


def claim(state: State, found: Match, boundary_tokens: int) -> Lease:
    """Protects what a boundary of the match's known path needs, valid or not, and counts no use.

    Splits the node in which the boundary lies. Cost: O(nodes from the boundary to the end of the path,
    and nodes that the boundary needs).

    Args:
        boundary_tokens: a multiple of the page, at most `found.path_tokens`.

    Raises:
        ConfigError: the boundary is not a place on the match's path.
        StaleHandleError: the node in which the path ended is gone, or no longer reaches the boundary.
    """
    boundary = boundary_on_path(state, found, boundary_tokens)
    if boundary == 0:
        return open_lease(state, state.root(found.namespace), 0)
    node = node_of(state, found, boundary)
    if node.end > boundary:
        node = split(state, node, boundary)
    return open_lease(state, node, boundary)


def holdings(state: State, found: Match, boundary_tokens: int) -> dict[str, tuple[Held, ...]]:
    """All runs that are held before a boundary of the match's known path, needed by it or not.

    Changes nothing. Cost: O(slots told, nodes on the path).

    Returns:
        Component name to its runs, shallow ones first, as long as they can be; no run for none held.
        The slots are copies.

    Raises:
        ConfigError, StaleHandleError: as `claim`.
    """
    boundary = boundary_on_path(state, found, boundary_tokens)
    if boundary == 0:
        return {spec.name: () for spec in state.specs}
    node = node_of(state, found, boundary)
    return {spec.name: runs_of(node, index, boundary) for index, spec in enumerate(state.specs)}


def boundary_on_path(state: State, found: Match, boundary_tokens: int) -> int:
    """The boundary in pages.

    Raises:
        ConfigError: it is not a multiple of the page, or not on the match's known path.
    """
    if boundary_tokens % state.page_tokens or not 0 <= boundary_tokens <= found.path_tokens:
        raise ConfigError(
            f"boundary {boundary_tokens} is not a multiple of {state.page_tokens} tokens between 0 and"
            f" {found.path_tokens}",
            hint="choose a page boundary on the match's known path",
        )
    return boundary_tokens // state.page_tokens


def node_of(state: State, found: Match, boundary: int) -> Node:
    """The node of the match's path in which a boundary lies that is not 0.

    Raises:
        StaleHandleError: the tree does not know that much of the path any more.
    """
    node = state.node(found.path_node)
    while node.start >= boundary and node.parent is not None:
        node = node.parent
    if node.end < boundary:
        raise StaleHandleError(
            f"boundary {boundary * state.page_tokens} is not in the tree any more",
            hint="values were evicted; match again",
        )
    return node


def runs_of(node: Node, component: int, boundary: int) -> tuple[Held, ...]:
    """What one component holds of `[0, boundary)`, in runs as long as they can be."""
    parts: list[Held] = []  # deep ones first
    for step in path_up(node):
        holding = holding_of(step, component)
        begin, end = holding.first, min(boundary, holding.end)
        if begin < end:
            parts.append(Held(begin, holding.slots[: end - begin].copy()))
    return tuple(joined(parts[::-1]))
