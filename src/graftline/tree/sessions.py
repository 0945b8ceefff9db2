"""Sessions: who is likely to come back, and to what (rules S-1 to S-7).

A session has one frontier: the boundary that its last request reached. What that boundary needs, per
component, is *referenced*. A reference is a place like a lock (rule L-2), so it survives splits, but it
protects nothing: it only tells the policy. When pages leave, the references on them leave too.

    lock       counted while a lease is out       the values cannot leave
    reference  counted while a session is open    the policy ranks the values higher, if it cares
"""

from __future__ import annotations

import math

from graftline.errors import ConfigError
from graftline.policies import Passage
from graftline.tree.liveness import rank_holding
from graftline.tree.node import Node
from graftline.tree.state import LeaseRecord, SessionRecord, State, holding_of, path_up

PRIORITY_MAX = (1 << 20) - 1
ANSWER_TOKENS_MAX = (1 << 32) - 1


def set_time(state: State, now_s: float) -> tuple[str, ...]:
    """Tells the time and closes what was idle for longer than the time-to-live (rule S-2).

    A time that lies before the last one told is left out. Cost: that of the sessions closed.

    Returns:
        Names of the sessions closed, the one idle longest first.

    Raises:
        ConfigError: the time is not a finite number.
    """
    if not math.isfinite(now_s):
        raise ConfigError(f"the time is {now_s}, it must be a finite number of seconds")
    state.now_s = max(state.now_s, now_s)
    state.policy.set_time(state.now_s)
    closed = []
    while state.sessions:
        name, record = next(iter(state.sessions.items()))
        if state.now_s - record.last_s <= state.session_ttl_s:
            break
        close_session(state, name)
        closed.append(name)
    return tuple(closed)


def open_session(state: State, name: str, priority: int, expected_return_s: float | None) -> int:
    """Opens a session, or renews the hints and the idle time of one that is open (rule S-1).

    When there are too many, the one idle longest is closed.

    Args:
        priority: how much it matters that the session is fast, for policies that ask.
        expected_return_s: seconds from a request's end until the next one, if the caller knows.

    Returns:
        The session's handle, which is never used again after the session is closed.

    Raises:
        ConfigError: a priority outside of 0 to 1048575, or seconds below 0 or not finite.
    """
    if not 0 <= priority <= PRIORITY_MAX:
        raise ConfigError(f"priority is {priority}, it must be from 0 to {PRIORITY_MAX}")
    if expected_return_s is not None and not 0 <= expected_return_s < math.inf:
        raise ConfigError(f"expected_return_s is {expected_return_s}, it must be 0 or more, and finite")
    record = state.sessions.pop(name, None)
    if record is None:
        if len(state.sessions) >= state.max_sessions:
            close_session(state, next(iter(state.sessions)))
        record = SessionRecord(state.next_ident(), priority, expected_return_s, state.now_s)
        state.names[record.handle] = name
    record.priority, record.expected_return_s, record.last_s = priority, expected_return_s, state.now_s
    state.sessions[name] = record  # now the one used last
    return record.handle


def register(state: State, handle: int, lease_handle: int, answer_tokens: int | None) -> bool:
    """Moves a session's frontier to the boundary of a lease that is out (rules S-3, S-4).

    What the frontier before needed is not referenced any more. Cost: O(nodes that both boundaries need).

    Args:
        answer_tokens: length of the request's answer, for policies that age; None where nobody knows.

    Returns:
        False when the session was closed: who finishes late cannot open it again.

    Raises:
        StaleHandleError: the lease was released.
        ConfigError: an answer of less than 0 tokens, or of more than 2³²−1.
    """
    if answer_tokens is not None and not 0 <= answer_tokens <= ANSWER_TOKENS_MAX:
        raise ConfigError(f"answer_tokens is {answer_tokens}, it must be from 0 to {ANSWER_TOKENS_MAX}")
    lease = state.lease_record(lease_handle)
    name = state.names.get(handle)
    if name is None:
        return False
    record = state.sessions.pop(name)
    record.last_s = state.now_s
    state.sessions[name] = record
    if state.policy.ages:
        tell_passage(state, record, lease, answer_tokens)
    move_frontier(state, name, lease.node if lease.boundary else None, lease.boundary)
    return True


def tell_passage(state: State, record: SessionRecord, lease: LeaseRecord, answer_tokens: int | None) -> None:
    """Tells a policy that ages that a session came back, and of all that lies on its path (rule P-8)."""
    steps = list(path_up(lease.node))
    here = {step.ident for step in steps}
    kept: int | None = None
    if record.node is not None and record.node.ident not in here:
        kept = next((step.end for step in path_up(record.node) if step.ident in here), 0)
    if answer_tokens is None:
        is_new = all(holding.usage.uses < 2 for holding in lease.node.holdings)
        answer_pages = float(lease.node.pages if is_new else 0)
    else:
        answer_pages = answer_tokens / state.page_tokens
    state.policy.registered(Passage(record.handle, lease.boundary, kept, answer_pages))
    for component in range(len(state.specs)):
        for step in referenced_nodes(state, lease.node, component, lease.boundary):
            holding = holding_of(step, component)
            if len(holding.slots):
                holding.usage.start_page, holding.usage.end_page = step.start, step.end
                state.policy.passed(holding.usage)
                holding.usage.stale = True
    state.policy.settled()


def fork_session(state: State, source_name: str, target_name: str) -> int:
    """Opens the target with the source's hints and frontier; both go on apart (rule S-6).

    Returns:
        The target's handle.

    Raises:
        ConfigError: the source is not open.
    """
    source = state.sessions.get(source_name)
    if source is None:
        raise ConfigError(
            f"no session is named '{source_name}'", hint="it was never opened, or it was closed"
        )
    node, boundary = source.node, source.boundary
    handle = open_session(state, target_name, source.priority, source.expected_return_s)
    move_frontier(state, target_name, node, boundary)
    return handle


def close_session(state: State, name: str) -> bool:
    """Closes a session; its references go (rule S-1). Cost: O(nodes that its frontier needs).

    Returns:
        Whether it was open.
    """
    if name not in state.sessions:
        return False
    move_frontier(state, name, None, 0)
    state.policy.closed(state.sessions[name].handle)
    del state.names[state.sessions.pop(name).handle]
    return True


def move_frontier(state: State, name: str, node: Node | None, boundary: int) -> None:
    """Takes the references of the frontier before back, and adds those of the new one.

    Policies are asked when both is done, and only where it makes a difference (rule P-3).
    """
    record = state.sessions[name]
    before, boundary_before = record.node, record.boundary
    if node is not None:
        node.sessions[name] = None
        refer(state, node, boundary, +1)
        give_hints(state, record, node, boundary)
    if before is not None:
        if before is not node:
            before.sessions.pop(name, None)
        refer(state, before, boundary_before, -1)
    record.node, record.boundary = node, boundary
    for end, reached in ((before, boundary_before), (node, boundary)):
        for component in range(len(state.specs) if end is not None else 0):
            for step in referenced_nodes(state, end, component, reached):
                rank_holding(state, step, component)


def referenced_nodes(state: State, node: Node | None, component: int, boundary: int) -> list[Node]:
    """Nodes up from a frontier in which there are pages that `boundary` needs of a component."""
    first = state.first_page(component, boundary)
    steps = path_up(node) if node is not None else iter(())
    found = []
    for step in steps:
        if step.end <= first:
            break
        found.append(step)
    return found


def refer(state: State, node: Node, boundary: int, change: int) -> None:
    """Adds or takes back one reference on the pages up to the node's end that `boundary` needs."""
    for component in range(len(state.specs)):
        first = state.first_page(component, boundary)
        for step in referenced_nodes(state, node, component, boundary):
            references = holding_of(step, component).references
            place = max(first, step.start)
            count = references.get(place, 0) + change
            assert count >= 0, f"S-3: reference count of page {place} would be {count}"
            if count:
                references[place] = count
            else:
                del references[place]


def give_hints(state: State, record: SessionRecord, node: Node, boundary: int) -> None:
    """Tells what is referenced the session's hints (rule S-7)."""
    for component in range(len(state.specs)):
        for step in referenced_nodes(state, node, component, boundary):
            usage = holding_of(step, component).usage
            before = usage.priority, usage.return_s
            usage.priority = max(usage.priority, record.priority)
            if record.expected_return_s is not None:
                expected_s = state.now_s + record.expected_return_s
                is_ahead = usage.return_s > state.now_s
                usage.return_s = min(usage.return_s, expected_s) if is_ahead else expected_s
            if before != (usage.priority, usage.return_s):
                usage.stale = True
