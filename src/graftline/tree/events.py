"""Events: in order, they tell what came and what left (rule V-1)."""

from __future__ import annotations

from graftline.key import Tokens, page_keys
from graftline.plan import Event, Held
from graftline.tree.node import NO_TOKENS, Node
from graftline.tree.state import State


def keys_of(state: State, node: Node) -> list[bytes]:
    """Chained keys of the node's pages (rule K-4); hashed once, kept with the node."""
    if len(node.page_keys) < node.pages:
        node.page_keys = list(page_keys(key_before(state, node), node.tokens, state.page_tokens))
    return node.page_keys


def key_before(state: State, node: Node) -> bytes:
    """Key of the page before the node's first one."""
    parent = node.parent
    if parent is None or parent.parent is None:
        return node.namespace.seed()
    return keys_of(state, parent)[-1]


def record_stored(state: State, node: Node, component: int, part: Held) -> None:
    """A component got pages of a node."""
    if state.record_events and len(part.slots):
        first = part.first_page - node.start
        page = state.page_tokens
        tokens = node.tokens[first * page : (first + len(part.slots)) * page].copy()
        append(state, node, component, ("stored", part.first_page, len(part.slots), ""), tokens)


def record_removed(state: State, node: Node, component: int, first: int, count: int, reason: str) -> None:
    """A component lost pages of a node."""
    if state.record_events and count:
        append(state, node, component, ("removed", first, count, reason), NO_TOKENS)


def append(state: State, node: Node, component: int, what: tuple[str, int, int, str], tokens: Tokens) -> None:
    """Writes one event down."""
    kind, first, count, reason = what
    keys = keys_of(state, node)
    begin = first - node.start
    state.events.append(
        Event(
            kind=kind,
            component=state.specs[component].name,
            tier=state.tier,
            namespace=node.namespace,
            first_page=first,
            page_keys=tuple(keys[begin : begin + count]),
            parent_key=keys[begin - 1] if begin else key_before(state, node),
            tokens=tokens,
            reason=reason,
        )
    )
