"""Where reuse is valid inside one node: the components' votes.

For one component and one node, the valid boundaries are an interval (those of its run, since
`first_page` never goes down) and the boundaries that need nothing. So the deepest boundary on which
all agree is found by letting the components push each other down until nobody objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from graftline.tree.node import Node
from graftline.tree.state import State, holding_of


def run_start(state: State, node: Node, component: int) -> int:
    """Start of the gapless run of pages that ends with the node's own run.

    Looks no further back than the shallowest boundary of the node needs. Cost: O(nodes in the window).
    """
    enough = state.first_page(component, node.start + 1)
    holding = holding_of(node, component)
    start = holding.first
    while start == node.start and start > enough and node.parent is not None:
        node = node.parent
        holding = holding_of(node, component)
        if len(holding.slots) == 0 or holding.end != node.end:
            break
        start = holding.first
    return start


def deepest_for(state: State, node: Node, component: int, limit: int) -> int:
    """Deepest boundary at or below `limit` that one component accepts; `node.start` or less for none."""
    rule = state.specs[component].rule
    holding = holding_of(node, component)
    best = rule.free_at_or_below(limit, state.page_tokens)
    top = min(limit, holding.end)
    if len(holding.slots) and top > max(best, holding.first):
        start = run_start(state, node, component)
        if rule.first_page(top, state.page_tokens) >= start:
            best = top
    return best


def deepest_agreed(state: State, node: Node, components: Sequence[int], limit: int) -> int:
    """Deepest boundary in the node, at or below `limit`, that all given components accept; 0 for none."""
    boundary = min(limit, node.end)
    settled = False
    while not settled:
        settled = True
        for component in components:
            accepted = deepest_for(state, node, component, boundary)
            if accepted <= node.start:
                return 0
            if accepted < boundary:
                boundary, settled = accepted, False
    return boundary


def shallowest_for(state: State, node: Node, component: int, least: int) -> int | None:
    """Shallowest boundary at or above `least`, inside the node, that one component accepts."""
    rule, page_tokens = state.specs[component].rule, state.page_tokens
    holding = holding_of(node, component)
    free = rule.free_at_or_above(least, node.end, page_tokens)
    low, high = max(least, holding.first + 1), holding.end
    if len(holding.slots) == 0 or low > high:
        return free
    start = run_start(state, node, component)
    if rule.first_page(high, page_tokens) < start:
        return free
    while low < high:  # first_page never goes down: the valid boundaries are the upper part
        middle = (low + high) // 2
        if rule.first_page(middle, page_tokens) >= start:
            high = middle
        else:
            low = middle + 1
    return low if free is None else min(low, free)


def shallowest_agreed(state: State, node: Node, components: Sequence[int]) -> int:
    """Shallowest boundary in the node that all components accept; 0 for none."""
    boundary = node.start + 1
    settled = False
    while not settled:
        settled = True
        for component in components:
            accepted = shallowest_for(state, node, component, boundary)
            if accepted is None or accepted > node.end:
                return 0
            if accepted > boundary:
                boundary, settled = accepted, False
    return boundary
