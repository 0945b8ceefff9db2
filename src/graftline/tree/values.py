"""The values given to an insertion: checking them, and putting them into nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graftline.errors import ConfigError
from graftline.plan import Held
from graftline.tree.node import Node
from graftline.tree.split import split
from graftline.tree.state import State, holding_of

Values = list[list[Held]]


def check_values(state: State, values: Mapping[str, Sequence[Held]], start: int, end: int) -> Values:
    """Runs by component index, in order of their place; rule N-2.

    Raises:
        ConfigError: an unknown component, a run outside `[start, end)`, or runs that overlap.
    """
    given: Values = [[] for _ in state.specs]
    for name, runs in values.items():
        ordered = sorted((run for run in runs if len(run.slots)), key=lambda run: run.first_page)
        reached = start
        for run in ordered:
            if run.first_page < reached or run.end_page > end:
                raise ConfigError(
                    f"component '{name}': pages {run.first_page} to {run.end_page} overlap another run or lie"
                    f" outside the inserted pages {start} to {end}"
                )
            reached = run.end_page
        given[state.component(name)] = joined(ordered)
    return given


def joined(runs: Sequence[Held]) -> list[Held]:
    """Runs in order of their place, with those that follow on each other made one."""
    groups: list[list[Held]] = []
    for run in runs:
        if groups and groups[-1][-1].end_page == run.first_page:
            groups[-1].append(run)
        else:
            groups.append([run])
    return [
        Held(group[0].first_page, np.concatenate([run.slots for run in group])) if group[1:] else group[0]
        for group in groups
    ]


def missing_closed(state: State, given: Values, known_end: int, end: int) -> None:
    """A prefix-closed component must give every page that the tree does not know; rule N-3.

    Raises:
        ConfigError: names the component and the first page that is missing.
    """
    for component, spec in enumerate(state.specs):
        if not state.closed(component):
            continue
        reached = known_end
        for run in given[component]:
            if run.first_page > reached:
                break
            reached = max(reached, run.end_page)
        if reached < end:
            raise ConfigError(
                f"component '{spec.name}' needs every page of a prefix, page {reached} is missing",
                hint="give the slots of all pages after the lease's boundary",
            )


def attach(state: State, node: Node, component: int, part: Held) -> Node:
    """Puts pages that the component does not hold into a node of the path.

    Where the node's run would get a gap, the node is split between the two runs (rule T-3).

    Returns:
        The node that holds the pages now, from which to go on upward.
    """
    holding = holding_of(node, component)
    if len(holding.slots) and part.first_page > holding.end:
        split(state, node, holding.end)
        holding = holding_of(node, component)
    elif len(holding.slots) and part.end_page < holding.first:
        node = split(state, node, part.end_page)
        holding = holding_of(node, component)
    slots = part.slots.astype(np.int32, copy=True)
    if not len(holding.slots):
        holding.first, holding.slots = part.first_page, slots
    elif part.first_page == holding.end:
        holding.slots = np.concatenate([holding.slots, slots])
    else:
        holding.first, holding.slots = part.first_page, np.concatenate([slots, holding.slots])
    return node
