"""Which values a boundary can still use, and the order in which the others and they may leave.

A value is *live* when it lies between the first page that the shallowest and the end that the
deepest agreed boundary of its node need, or when a boundary below needs it; else it is *dead*
(rule E-1). Values of one boundary are thus judged together: when a state goes, the pages that only
that state made usable are dead from then on, in every pool.
"""

from __future__ import annotations

from typing import NamedTuple

from graftline.tree.boundaries import deepest_agreed, shallowest_agreed
from graftline.tree.node import Node
from graftline.tree.ranks import ask_again
from graftline.tree.state import DEAD, LIVE, State, holding_of, push_candidate


class Evictable(NamedTuple):
    """Pages of one run that may leave: dead ones at the head, dead ones at the tail, then live ones."""

    dead_head: int
    dead_tail: int
    live: int


def reconsider(state: State, node: Node) -> None:
    """Finds the node's agreed boundaries again and carries a change upward (rule E-1)."""
    before = node.first_boundary
    everyone = range(len(state.specs))
    node.deepest = deepest_agreed(state, node, everyone, node.end) if node.pages else 0
    node.shallowest = shallowest_agreed(state, node, everyone) if node.deepest else 0
    rank_node(state, node)
    carry_up(state, node, before)


def carry_up(state: State, node: Node, before: int) -> None:
    """Tells the ancestors that the shallowest boundary in or below `node` changed."""
    while node.parent is not None and node.first_boundary != before:
        parent, now = node.parent, node.first_boundary
        parent_before, below_before = parent.first_boundary, parent.below
        if now and (not below_before or now <= below_before):
            parent.below = now
        elif below_before == before:
            parent.below = shallowest_below(parent)
        if parent.below == below_before:
            return
        rank_node(state, parent)
        node, before = parent, parent_before


def shallowest_below(node: Node) -> int:
    """Shallowest agreed boundary of all children. Cost: O(children)."""
    return min((child.first_boundary for child in node.children.values() if child.first_boundary), default=0)


def reconsider_below(state: State, node: Node, component: int, last_page: int) -> None:
    """Reconsiders every descendant with a boundary that may need pages of `component` up to `last_page`."""
    pending = list(node.children.values())
    while pending:
        child = pending.pop()
        if state.first_page(component, child.start + 1) <= last_page:
            reconsider(state, child)
            pending.extend(child.children.values())


def live_span(state: State, node: Node, component: int) -> tuple[int, int]:
    """Hull of the node's pages that some boundary needs of a component; empty as (end, end)."""
    first, last = node.end, node.end
    if node.shallowest:
        first = max(node.start, state.first_page(component, node.shallowest))
        last = node.deepest
    if node.below:
        needed = max(node.start, state.first_page(component, node.below))
        if needed < node.end:
            first, last = min(first, needed), node.end
    return first, last


def dead_pages(state: State, node: Node, component: int) -> tuple[int, int]:
    """How many pages of the run are dead, at its head and at its tail."""
    holding = holding_of(node, component)
    first, last = live_span(state, node, component)
    if first >= last or holding.first >= last:  # all of it is dead
        return len(holding.slots), 0
    head = min(max(first - holding.first, 0), len(holding.slots))
    tail = min(max(holding.end - last, 0), len(holding.slots) - head)
    return head, tail


def evictable(state: State, node: Node, component: int) -> Evictable:
    """Pages of the run that may leave now (rules E-2 to E-4)."""
    holding = holding_of(node, component)
    count = len(holding.slots)
    head, tail = dead_pages(state, node, component)
    if state.closed(component):
        if holding.locks or node.children or node.leases:
            return Evictable(0, 0, 0)
        return Evictable(0, head + tail, count - head - tail)
    locked_from = holding.lock_first()
    if locked_from is None or locked_from >= holding.end:
        return Evictable(head, tail, count - head - tail)
    open_pages = min(max(locked_from - holding.first, 0), count)
    head = min(head, open_pages)
    return Evictable(head, 0, open_pages - head)


def rank_node(state: State, node: Node) -> None:
    """Brings the candidates and counters of a node's holdings up to date."""
    for component in range(len(state.specs)):
        rank_holding(state, node, component)


def rank_holding(state: State, node: Node, component: int) -> None:
    """Brings one holding's candidate and counters up to date. Cost: O(log candidates)."""
    holding = holding_of(node, component)
    count_pages(state, node, component)
    if holding.version:
        state.live_candidates[component] -= 1
        holding.version = 0
    if len(holding.slots) == 0:
        return
    ask_again(state, node, component)
    dead_head, dead_tail, live = evictable(state, node, component)
    if not dead_head + dead_tail + live:
        return
    holding.version = state.next_ident()
    state.live_candidates[component] += 1
    kind = DEAD if dead_head + dead_tail else LIVE
    usage = holding.usage
    candidate = (kind, usage.level, usage.rank, usage.last_tick, node.start, node.ident, holding.version)
    push_candidate(state, component, candidate)


def count_pages(state: State, node: Node, component: int) -> None:
    """Brings the counters of leased and dead pages up to date for one holding (rule L-5)."""
    holding, counters = holding_of(node, component), state.counters[component]
    locked_from = holding.lock_first()
    leased = 0 if locked_from is None else max(0, holding.end - max(locked_from, holding.first))
    leased = min(leased, len(holding.slots))
    dead = sum(dead_pages(state, node, component))
    counters.leased += leased - holding.leased_pages
    counters.dead += dead - holding.dead_pages
    holding.leased_pages, holding.dead_pages = leased, dead
