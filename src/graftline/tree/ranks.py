"""Asking the policy: when a holding was used, when its sessions changed, when it is next to leave."""

from __future__ import annotations

from graftline.tree.node import Node
from graftline.tree.state import State, holding_of


def ask(state: State, node: Node, component: int) -> None:
    """Asks for the level and the rank (rules P-2, P-3)."""
    holding = holding_of(node, component)
    usage = holding.usage
    usage.sessions = holding.sessions()
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

    The caller puts a holding that is spared back into the order.
    """
    usage = holding_of(node, component).usage
    if usage.asked:
        return False
    usage.asked = True
    rank = state.policy.rerank(usage, state.now_s, state.clock)
    if rank <= usage.rank:
        return False
    usage.rank = rank
    return True
