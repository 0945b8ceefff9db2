"""Splitting and removing nodes."""

from __future__ import annotations

from graftline.tree.liveness import carry_up, rank_node, reconsider
from graftline.tree.node import NO_SLOTS, Holding, Node
from graftline.tree.ranks import ask_exposed
from graftline.tree.state import State, holding_of


def split(state: State, node: Node, at_page: int) -> Node:
    """Cuts a node in two and returns the upper half; `node` stays the deeper half (rule T-5).

    Runs, locks, references and usage are cut with it. Cost: O(components + log candidates).
    """
    upper = Node(state.next_ident(), node.namespace, node.parent, node.start, len(state.specs))
    cut = at_page - node.start
    assert 0 < cut < node.pages
    assert node.parent is not None
    upper.pages = cut
    upper.tokens = node.tokens[: cut * state.page_tokens]
    node.parent.children[state.child_key(upper.tokens)] = upper
    node.tokens = node.tokens[cut * state.page_tokens :]
    node.start, node.pages, node.parent = at_page, node.pages - cut, upper
    upper.children[state.child_key(node.tokens)] = node
    upper.page_keys, node.page_keys = node.page_keys[:cut], node.page_keys[cut:]
    for mine, theirs in zip(node.holdings, upper.holdings, strict=True):
        split_holding(mine, theirs, at_page)
    state.nodes[upper.ident] = upper
    upper.below = node.first_boundary
    reconsider(state, node)
    reconsider(state, upper)
    return upper


def split_holding(lower: Holding, upper: Holding, at_page: int) -> None:
    """Cuts what one component holds at a page."""
    upper.usage = lower.usage.copy()
    upper.lost = lower.lost
    split_places(lower.locks, upper.locks, at_page)
    split_places(lower.references, upper.references, at_page)
    kept = max(0, min(at_page - lower.first, len(lower.slots)))
    upper.first, upper.slots = lower.first, lower.slots[:kept]
    lower.first, lower.slots = lower.first + kept, lower.slots[kept:]


def split_places(lower: dict[int, int], upper: dict[int, int], at_page: int) -> None:
    """Cuts what counts from a page on at a page (rule L-2)."""
    for first, count in sorted(lower.items()):
        if first < at_page:
            upper[first] = count
            del lower[first]
            lower[at_page] = lower.get(at_page, 0) + count


def prune(state: State, node: Node) -> None:
    """Removes what holds nothing and is not leased: a tail, a node, its ancestors (rule T-4)."""
    while node.parent is not None and not node.children and not node.leases:
        end = max((h.end for h in node.holdings if len(h.slots)), default=node.start)
        if end > node.start:
            trim(state, node, end)
            return
        node = remove(state, node)
    if node.parent is None and not node.children and not node.leases:
        state.forget_root(node)


def trim(state: State, node: Node, end: int) -> None:
    """Cuts the pages from `end` on, of which nothing is held, with the references on them (rule S-5)."""
    if end == node.end:
        return
    state.path_pages -= node.end - end
    node.pages = end - node.start
    node.tokens = node.tokens[: node.pages * state.page_tokens].copy()
    del node.page_keys[node.pages :]
    for holding in node.holdings:
        holding.references = {first: n for first, n in holding.references.items() if first < end}
    reconsider(state, node)


def remove(state: State, node: Node) -> Node:
    """Takes a childless node out of the tree and returns its parent."""
    parent = node.parent
    assert parent is not None
    for component in range(len(state.specs)):
        holding = holding_of(node, component)
        assert not holding.locks
        holding.slots = NO_SLOTS
    before = node.first_boundary
    node.shallowest = node.deepest = node.below = 0
    rank_node(state, node)
    carry_up(state, node, before)
    del parent.children[state.child_key(node.tokens)]
    del state.nodes[node.ident]
    state.path_pages -= node.pages
    move_frontiers(state, node, parent)
    ask_exposed(state, parent)
    rank_node(state, parent)
    return parent


def move_frontiers(state: State, node: Node, parent: Node) -> None:
    """Sessions that ended at a node that leaves end at its parent from now on (rule S-5)."""
    for name in node.sessions:
        state.sessions[name].node = parent if parent.parent is not None else None
    if parent.parent is not None:
        parent.sessions |= node.sessions
    node.sessions = {}
