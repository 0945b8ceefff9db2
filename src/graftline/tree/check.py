"""check(): every invariant of the tree, found again by walking. Cost: O(everything)."""

from __future__ import annotations

from collections import Counter

from graftline.errors import IntegrityError
from graftline.tree.boundaries import deepest_agreed, shallowest_agreed
from graftline.tree.check_sessions import check_sessions
from graftline.tree.liveness import dead_pages, evictable, shallowest_below
from graftline.tree.node import Node
from graftline.tree.state import DEAD, LIVE, State, holding_of, is_valid, path_up


def check(state: State) -> None:
    """Raises `IntegrityError` with the rule's number when the bookkeeping contradicts itself."""
    for node in state.nodes.values():
        check_topology(state, node)
        check_form(state, node)
        check_boundaries(state, node)
        check_candidates(state, node)
    check_locks(state)
    check_slots(state)
    check_counters(state)
    check_sessions(state)


def broken(rule: str, node: Node, message: str) -> IntegrityError:
    """An error that names the rule and the node."""
    return IntegrityError(rule, f"node {node.ident} at pages {node.start}..{node.end}: {message}")


def check_topology(state: State, node: Node) -> None:
    """T-1, T-2, T-4: places follow on each other, children are found, nothing empty stays."""
    if node.parent is None:
        if node.pages or state.roots.get(node.namespace) is not node:
            raise broken("T-1", node, "a root has pages or is not registered")
        if not node.children and not node.leases:
            raise broken("T-4", node, "a root without children or leases stayed")
        return
    if node.start != node.parent.end or node.pages < 1:
        raise broken("T-1", node, f"does not follow on its parent, which ends at {node.parent.end}")
    if len(node.tokens) != node.pages * state.page_tokens:
        raise broken("T-1", node, f"has {len(node.tokens)} tokens")
    if node.parent.children.get(state.child_key(node.tokens)) is not node:
        raise broken("T-2", node, "is not found by its first page")
    holds = max(
        (holding_of(node, c).end for c in range(len(state.specs)) if len(holding_of(node, c).slots)),
        default=0,
    )
    if not node.children and not node.leases and holds < node.end:
        raise broken("T-4", node, "ends in pages of which nothing is held")


def check_form(state: State, node: Node) -> None:
    """T-3, T-7: runs lie inside their node, prefix-closed components hold all of it."""
    for component, spec in enumerate(state.specs):
        holding = holding_of(node, component)
        if len(holding.slots) and not node.start <= holding.first < holding.end <= node.end:
            raise broken("T-3", node, f"'{spec.name}' holds pages {holding.first}..{holding.end}")
        if state.closed(component) and len(holding.slots) != node.pages:
            raise broken("T-7", node, f"'{spec.name}' holds {len(holding.slots)} of {node.pages} pages")


def check_boundaries(state: State, node: Node) -> None:
    """E-1: the agreed boundaries kept with the node are those that the rules give."""
    everyone = range(len(state.specs))
    deepest = deepest_agreed(state, node, everyone, node.end) if node.pages else 0
    shallowest = shallowest_agreed(state, node, everyone) if deepest else 0
    if (shallowest, deepest) != (node.shallowest, node.deepest):
        raise broken("E-1", node, f"keeps {node.shallowest}..{node.deepest}, finds {shallowest}..{deepest}")
    if node.below != shallowest_below(node):
        raise broken("E-1", node, f"keeps {node.below} as shallowest below, finds {shallowest_below(node)}")


def check_candidates(state: State, node: Node) -> None:
    """E-6: what may leave is a candidate, and nothing else is."""
    for component, spec in enumerate(state.specs):
        holding = holding_of(node, component)
        pages = evictable(state, node, component)
        kind = DEAD if pages.dead_head + pages.dead_tail else LIVE
        usage = holding.usage
        wanted = (kind, usage.level, usage.rank, usage.last_tick, node.start, node.ident, holding.version)
        if bool(sum(pages)) != bool(holding.version):
            raise broken("E-6", node, f"'{spec.name}' {pages} with candidate {holding.version}")
        own = state.namespace_candidates.get((node.namespace, component), [wanted])
        if holding.version and not (wanted in state.candidates[component] and wanted in own):
            raise broken("E-6", node, f"'{spec.name}' has no candidate {wanted}")


def check_locks(state: State) -> None:
    """L-2, L-4: locks are those of the leases that are out."""
    locks: Counter[tuple[int, int, int]] = Counter()
    ends: Counter[int] = Counter()
    for record in state.leases.values():
        ends[record.node.ident] += 1
        for component in record.components:
            first = state.first_page(component, record.boundary)
            for node in path_up(record.node):
                if node.end > first:
                    locks[node.ident, component, max(first, node.start)] += 1
    kept = Counter(
        {
            (node.ident, component, first): count
            for node in state.nodes.values()
            for component in range(len(state.specs))
            for first, count in holding_of(node, component).locks.items()
        }
    )
    if kept != locks:
        raise IntegrityError("L-2", f"locks {kept - locks} are too many, {locks - kept} are missing")
    for node in state.nodes.values():
        if node.leases != ends[node.ident]:
            raise broken("L-2", node, f"counts {node.leases} leases, {ends[node.ident]} end here")


def check_slots(state: State) -> None:
    """T-8: a slot is held once."""
    for component, spec in enumerate(state.specs):
        slots = Counter(int(s) for node in state.nodes.values() for s in holding_of(node, component).slots)
        twice = [slot for slot, count in slots.items() if count > 1]
        if twice:
            raise IntegrityError("T-8", f"component '{spec.name}' holds slots {twice} twice")


def check_counters(state: State) -> None:
    """L-5: the counters are what walking finds."""
    for component, spec in enumerate(state.specs):
        held = leased = dead = valid = 0
        by_namespace = dict.fromkeys(state.roots, 0)
        for node in state.nodes.values():
            holding = holding_of(node, component)
            held += len(holding.slots)
            by_namespace[node.namespace] += len(holding.slots)
            first = holding.lock_first()
            if first is not None:
                leased += sum(1 for page in range(holding.first, holding.end) if page >= first)
            dead += sum(dead_pages(state, node, component))
            valid += bool(holding.version)
        counters = state.counters[component]
        if (held, leased, dead) != (counters.held, counters.leased, counters.dead):
            raise IntegrityError("L-5", f"'{spec.name}': {counters}, found {held}, {leased}, {dead}")
        if by_namespace != {name: counts[component] for name, counts in state.namespace_held.items()}:
            raise IntegrityError("L-5", f"'{spec.name}': {state.namespace_held}, found {by_namespace}")
        queue = sum(is_valid(state, component, entry) for entry in state.candidates[component])
        if not valid == queue == state.live_candidates[component]:
            raise IntegrityError("E-6", f"'{spec.name}': {valid} candidates, {queue} queued")
    if state.path_pages != sum(node.pages for node in state.nodes.values()):
        raise IntegrityError("T-1", f"counts {state.path_pages} pages of path")
