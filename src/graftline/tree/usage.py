"""Uses: what a lease or an insertion touches (rule P-1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graftline.plan import Held
from graftline.tree.liveness import rank_holding
from graftline.tree.node import Holding, Node
from graftline.tree.ranks import ask
from graftline.tree.state import State, holding_of, path_up


def touch(state: State, node: Node, boundary: int, fresh: Sequence[Sequence[Held]] = ()) -> None:
    """Counts a use of what `boundary` needs on the path to `node`, and of holdings that are new.

    In the order of the components, shallow before deep, so that of equally useful windows and
    checkpoints the shallow ones are the older.

    Args:
        fresh: by component, the pages that got a value just now.
    """
    path = list(path_up(node))[::-1]
    for component in range(len(state.specs)):
        first = state.first_page(component, boundary)
        new = fresh[component] if fresh else ()
        for step in path:
            holding = holding_of(step, component)
            if max(first, holding.first) < min(boundary, holding.end) or holds_any(holding, new):
                if state.policy.ages and not fresh:
                    tell_found(state, step, component)
                touch_holding(state, step, component)


def tell_found(state: State, node: Node, component: int) -> None:
    """Tells a policy that ages of a holding that a lease needs (rule P-8)."""
    usage = holding_of(node, component).usage
    usage.start_page, usage.end_page = node.start, node.end
    state.policy.found(usage)


def holds_any(holding: Holding, runs: Iterable[Held]) -> bool:
    """Whether some page of the runs is held here."""
    return len(holding.slots) > 0 and any(
        run.first_page < holding.end and holding.first < run.end_page for run in runs
    )


def touch_holding(state: State, node: Node, component: int) -> None:
    """One use of one holding."""
    state.clock += 1
    usage = holding_of(node, component).usage
    gap_ticks, gap_s = state.clock - usage.last_tick, state.now_s - usage.last_s
    usage.last_tick = state.clock
    usage.last_s = state.now_s
    usage.uses += 1
    usage.start_page, usage.end_page, usage.children = node.start, node.end, len(node.children)
    state.policy.touch(usage, gap_ticks, gap_s)
    ask(state, node, component)
    rank_holding(state, node, component)
