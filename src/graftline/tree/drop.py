"""Drop: one state leaves before its turn, because its owner knows that it has been superseded (rule E-9)."""

from __future__ import annotations

from graftline.errors import ConfigError
from graftline.plan import Freed
from graftline.tree.evict import Harvest, drop_head, drop_tail
from graftline.tree.liveness import live_span, reconsider
from graftline.tree.node import Node
from graftline.tree.split import split
from graftline.tree.state import State, holding_of


def drop(state: State, lease_handle: int, component: int, boundary_tokens: int) -> Freed:
    """Takes a component's state at one boundary of a lease's path out of the tree.

    Nothing leaves where nothing is held, where a lease protects it, where a session refers to it, or where
    paths part. Cost: O(nodes between the lease's boundary and the state's).

    Args:
        boundary_tokens: a multiple of the page, more than 0, at most the lease's boundary.

    Raises:
        ConfigError: a component without states, or not a boundary of the lease's path.
        StaleHandleError: the lease was released.
    """
    record = state.lease_record(lease_handle)
    require_states(state, component)
    boundary = boundary_before(state, boundary_tokens, record.boundary)
    node = record.node
    while node.start >= boundary and node.parent is not None:
        node = node.parent
    harvest = Harvest(state)
    if may_drop(node, component, boundary):
        take_state(state, node, component, boundary - 1, harvest)
    return harvest.freed()


def require_states(state: State, component: int) -> None:
    """Refuses a component whose pages no boundary has to itself.

    Raises:
        ConfigError: its rule keeps no states.
    """
    spec = state.specs[component]
    if not spec.rule.holds_state:
        raise ConfigError(
            f"component '{spec.name}' holds no states",
            hint="only checkpoints are dropped one by one; evict frees pages of other components",
        )


def boundary_before(state: State, boundary_tokens: int, end: int) -> int:
    """A boundary in pages that is not 0 and lies on a lease's path.

    Raises:
        ConfigError: it is none.
    """
    page, last = state.page_tokens, end * state.page_tokens
    if boundary_tokens % page or not 0 < boundary_tokens <= last:
        raise ConfigError(
            f"boundary {boundary_tokens} is not a multiple of {page} tokens between {page} and {last}",
            hint="choose a page boundary on the lease's path",
        )
    return boundary_tokens // page


def may_drop(node: Node, component: int, boundary: int) -> bool:
    """Whether a state is held at a boundary in a node, and nobody needs it but the path that it lies on."""
    holding, page = node.holdings[component], boundary - 1
    if not len(holding.slots) or not holding.first <= page < holding.end:
        return False
    if any(first <= page for first in (*holding.locks, *holding.references)):
        return False
    return not (node.end == boundary and len(node.children) > 1)


def take_state(state: State, node: Node, component: int, page: int, harvest: Harvest) -> None:
    """Takes the state on one page; the node is cut where its run would get a gap (rule T-3)."""
    first, last = live_span(state, node, component)
    reason = "evicted" if first <= page < last else "dead"
    holding = holding_of(node, component)
    if page + 1 == holding.end:
        drop_tail(state, node, component, page, reason, harvest)
        reconsider(state, node)  # no boundary below needs it
        return
    if holding.first < page:
        split(state, node, page)  # the handle stays with the deeper half
    drop_head(state, node, component, 1, reason, harvest)
