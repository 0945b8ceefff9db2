"""Evict: frees the slots asked for, dead values first, page by page (rules E-1 to E-7)."""

from __future__ import annotations

import heapq

import numpy as np

from graftline.key import Namespace
from graftline.plan import Freed, Slots
from graftline.tree.boundaries import run_start
from graftline.tree.events import record_removed
from graftline.tree.liveness import Evictable, evictable, rank_holding, reconsider, reconsider_below
from graftline.tree.node import NO_SLOTS, Holding, Node
from graftline.tree.ranks import ask, is_refresh_due, is_spared
from graftline.tree.split import prune
from graftline.tree.state import KIND, LIVE, NODE, Candidate, State, candidates_of, holding_of, is_valid


class Harvest:
    """Slots that left, by component."""

    __slots__ = ("dead", "names", "slots")

    def __init__(self, state: State) -> None:
        self.names = [spec.name for spec in state.specs]
        self.slots: list[list[Slots]] = [[] for _ in state.specs]
        self.dead = [0 for _ in state.specs]

    def freed(self) -> Freed:
        """The plan for the owner of the slots."""
        slots = {n: np.concatenate(parts) for n, parts in zip(self.names, self.slots, strict=True) if parts}
        dead = {n: count for n, count in zip(self.names, self.dead, strict=True) if count}
        return Freed(slots, dead)


def evict(state: State, component: int, wanted: int, namespace: Namespace | None) -> Freed:
    """Frees `wanted` slots of a component, or all that may go if those are fewer; of one namespace, if told.

    Other components lose what the freed pages made useless on the same pages (rule E-5). Cost:
    O(freed + log candidates), however many leaves there are and however much is leased; for the first time
    in a namespace O(candidates).
    """
    harvest = Harvest(state)
    missing = wanted
    if is_refresh_due(state, component):
        refresh(state, component)
    while missing > 0:
        candidate = coldest(state, component, candidates_of(state, component, namespace))
        if candidate is None:
            break
        node = state.nodes[candidate[NODE]]
        if candidate[KIND] == LIVE and is_spared(state, node, component):
            rank_holding(state, node, component)
        else:
            missing -= evict_from(state, node, component, missing, harvest)
    return harvest.freed()


def refresh(state: State, component: int) -> None:
    """Asks about all candidates of a component (rule P-7). Cost: O(candidates log candidates)."""
    found = [entry for entry in state.candidates[component] if is_valid(state, component, entry)]
    for candidate in found:
        node = state.nodes[candidate[NODE]]
        ask(state, node, component)
        rank_holding(state, node, component)


def coldest(state: State, component: int, queue: list[Candidate]) -> Candidate | None:
    """The candidate of a queue whose values leave next."""
    while queue:
        if is_valid(state, component, queue[0]):
            return queue[0]
        heapq.heappop(queue)
    return None


def evict_from(state: State, node: Node, component: int, wanted: int, harvest: Harvest) -> int:
    """Takes pages of one class from one node; returns how many."""
    pages = evictable(state, node, component)
    if pages.dead_head or pages.dead_tail:
        return evict_dead(state, node, component, pages, wanted, harvest)
    if state.closed(component):
        count = min(wanted, live_tail(state, node))
        drop_path(state, node, node.end - count, "evicted", harvest)
        return count
    count = live_head(state, node, component, min(wanted, pages.live))
    drop_head(state, node, component, count, "evicted", harvest)
    prune(state, node)
    return count


def evict_dead(
    state: State, node: Node, component: int, pages: Evictable, wanted: int, harvest: Harvest
) -> int:
    """Takes dead pages: those at the head first, then those at the tail."""
    if state.closed(component):
        count = min(wanted, pages.dead_tail)
        drop_path(state, node, node.end - count, "dead", harvest)
        return count
    head = min(wanted, pages.dead_head)
    tail = min(wanted - head, pages.dead_tail, pages_of_equal_rank(holding_of(node, component)))
    if head:
        drop_head(state, node, component, head, "dead", harvest)
    if tail:
        drop_tail(state, node, component, holding_of(node, component).end - tail, "dead", harvest)
        reconsider(state, node)
    prune(state, node)
    return head + tail


def pages_of_equal_rank(holding: Holding) -> int:
    """How many pages can leave from the tail of a run before fewer sessions refer to it (rule P-3)."""
    return holding.end - max((first for first in holding.references if first < holding.end), default=0)


def live_tail(state: State, node: Node) -> int:
    """How many pages can be cut from a leaf's tail while the page before stays usable; at least 1.

    Boundaries between the shallowest and the deepest one are all valid unless one of them needs nothing.
    """
    span = 1
    for component, spec in enumerate(state.specs):
        if spec.rule.free_at_or_above(node.start + 1, node.end, state.page_tokens) is not None:
            return span
        if not len(holding_of(node, component).slots):
            return span
    return max(span, node.deepest - node.shallowest)


def live_head(state: State, node: Node, component: int, wanted: int) -> int:
    """How many pages can be cut from a run's head while the next one stays usable; at least 1.

    Each is the first page that some boundary of the node needs; the deepest boundary keeps its own.
    """
    if not node.deepest or node.below:
        return 1
    for spec in state.specs:
        if spec.rule.free_at_or_above(node.start + 1, node.end, state.page_tokens) is not None:
            return 1
    holding = holding_of(node, component)
    if run_start(state, node, component) < holding.first:
        return 1
    page = holding.first
    for boundary in range(node.shallowest, node.deepest):
        if page == holding.first + wanted or state.first_page(component, boundary) > page:
            break
        page += state.first_page(component, boundary) == page
    return max(1, page - holding.first)


def drop_head(state: State, node: Node, component: int, count: int, reason: str, harvest: Harvest) -> None:
    """Takes the first pages of a run that is not prefix-closed."""
    holding = holding_of(node, component)
    taken = holding.slots[:count]
    record_removed(state, node, component, holding.first, count, reason)
    holding.first, holding.slots = holding.first + count, holding.slots[count:]
    last_page = holding.first - 1
    take(state, node, component, taken, reason, harvest)
    reconsider(state, node)
    reconsider_below(state, node, component, last_page)


def drop_tail(
    state: State, node: Node, component: int, from_page: int, reason: str, harvest: Harvest
) -> None:
    """Takes the pages of a run from `from_page` on; the caller reconsiders the node."""
    holding = holding_of(node, component)
    kept = max(0, from_page - holding.first)
    taken = holding.slots[kept:][::-1]
    if not len(taken):
        return
    record_removed(state, node, component, holding.end - len(taken), len(taken), reason)
    holding.slots = holding.slots[:kept] if kept else NO_SLOTS
    take(state, node, component, taken, reason, harvest)


def drop_path(state: State, node: Node, from_page: int, reason: str, harvest: Harvest) -> None:
    """Cuts a leaf's pages from `from_page` on, with all that any component holds there (rule E-5)."""
    for component in range(len(state.specs)):
        why = reason if state.closed(component) or reason == "cleared" else "path evicted"
        drop_tail(state, node, component, from_page, why, harvest)
    reconsider(state, node)
    prune(state, node)


def take(state: State, node: Node, component: int, slots: Slots, reason: str, harvest: Harvest) -> None:
    """Books slots that left a holding."""
    holding_of(node, component).lost = True
    state.count_held(node, component, -len(slots))
    harvest.slots[component].append(slots)
    if reason in ("dead", "path evicted"):
        harvest.dead[component] += len(slots)


def clear(state: State) -> Freed:
    """Frees everything that no lease protects (rule E-7). Cost: O(nodes)."""
    harvest = Harvest(state)
    for node in sorted(state.nodes.values(), key=lambda node: (-node.end, node.ident)):
        if node.parent is not None and node.ident in state.nodes:
            clear_node(state, node, harvest)
    return harvest.freed()


def clear_node(state: State, node: Node, harvest: Harvest) -> None:
    """Frees what may go of one node, whose descendants were cleared before."""
    for component in range(len(state.specs)):
        pages = evictable(state, node, component)
        count = pages.dead_head + pages.dead_tail + pages.live
        if count and state.closed(component):
            drop_path(state, node, node.start, "cleared", harvest)
            return
        if count:
            drop_head(state, node, component, count, "cleared", harvest)
    prune(state, node)
