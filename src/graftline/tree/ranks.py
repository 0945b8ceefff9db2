"""Asking the policy: when a holding was used, when its sessions changed, when it is next to leave."""

from __future__ import annotations

from graftline.tree.node import Node
from graftline.tree.state import State, holding_of, push_candidate


def tell_place(node: Node, component: int) -> None:
    """Writes down what the policy may want to know of the place: sessions, pages, children."""
    holding = holding_of(node, component)
    usage = holding.usage
    usage.sessions = holding.sessions()
    usage.start_page, usage.end_page = node.start, node.end
    usage.children = len(node.children)


def ask(state: State, node: Node, component: int) -> None:
    """Asks for the level and the rank (rules P-2, P-3)."""
    tell_place(node, component)
    usage = holding_of(node, component).usage
    usage.level = state.policy.level(usage)
    usage.rank = state.policy.rank(usage)
    usage.stale = usage.asked = False


def ask_again(state: State, node: Node, component: int) -> None:
    """Asks when the number of sessions or a hint changed since the policy was asked (rule P-3)."""
    holding = holding_of(node, component)
    if holding.usage.stale or holding.sessions() != holding.usage.sessions:
        ask(state, node, component)


def is_spared(state: State, node: Node, component: int) -> bool:
    """Asks once whether live values that are next to leave are worth more by now (rule P-4).

    A holding that is spared goes back into the order.
    """
    holding = holding_of(node, component)
    usage = holding.usage
    is_live = not holding.dead_evictable
    if usage.asked or not is_live:
        return False
    usage.asked = True
    tell_place(node, component)
    rank = state.policy.rerank(usage, state.now_s, state.clock)
    if rank <= usage.rank:
        return False
    usage.rank = rank
    return True
