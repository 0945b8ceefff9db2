"""Uses: what a lease or an insertion touches (rule P-1)."""

from __future__ import annotations

from collections.abc import Collection

from graftline.tree.liveness import rank_holding
from graftline.tree.node import Node
from graftline.tree.state import State, device, path_up


def touch(state: State, node: Node, boundary: int, fresh: Collection[tuple[int, int]] = ()) -> None:
    """Counts a use of what `boundary` needs on the path to `node`, and of holdings that are new.

    In the order of the components, shallow before deep, so that of equally useful windows and
    checkpoints the shallow ones are the older.

    Args:
        fresh: (node handle, component) of holdings that got a value just now.
    """
    path = list(path_up(node))[::-1]
    for component in range(len(state.specs)):
        first = state.first_page(component, boundary)
        for step in path:
            needed = step.end > first and step.start < boundary
            if len(device(step, component).slots) and (needed or (step.ident, component) in fresh):
                touch_holding(state, step, component)


def touch_holding(state: State, node: Node, component: int) -> None:
    """One use of one holding."""
    state.clock += 1
    usage = device(node, component).usage
    usage.last_tick = state.clock
    usage.uses += 1
    usage.rank = state.policy.rank(usage)
    rank_holding(state, node, component)
