"""Asking the policy: when a holding was used, when its sessions changed, when it is next to leave."""

from __future__ import annotations

from graftline.tree.node import Node
from graftline.tree.state import State, holding_of

REFRESHES = 16
"""Of the candidates of a component, so many are asked a call of evict, on the mean, by policies that age."""


def ask(state: State, node: Node, component: int) -> None:
    """Asks for the level and the rank (rules P-2, P-3)."""
    holding = holding_of(node, component)
    usage = holding.usage
    before, usage.sessions = usage.sessions, holding.sessions()
    if before and not usage.sessions and state.policy.ages:
        usage.start_page, usage.end_page = node.start, node.end
        state.policy.left(usage)
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


def is_refresh_due(state: State, component: int) -> bool:
    """Counts a call of evict, for a policy that ages; whether all candidates are to be asked (rule P-7)."""
    if not state.policy.ages:
        return False
    state.evictions[component] += 1
    if state.evictions[component] * REFRESHES < state.live_candidates[component]:
        return False
    state.evictions[component] = 0
    return True


def ask_exposed(state: State, node: Node) -> None:
    """Asks a policy that ages anew about a node that has no nodes below it any more (rule P-7)."""
    if state.policy.ages and not node.children:
        for component in range(len(state.specs)):
            if len(holding_of(node, component).slots):
                ask(state, node, component)
