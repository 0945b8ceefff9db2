"""Match: the longest reusable prefix of a key. Changes nothing (rule M-1)."""

from __future__ import annotations

from collections.abc import Sequence

from graftline.key import Namespace, Tokens
from graftline.plan import Match, Vote
from graftline.tree.boundaries import deepest_agreed
from graftline.tree.node import Node
from graftline.tree.state import State, holding_of, path_up

Path = list[Node]


def match(state: State, namespace: Namespace, tokens: Tokens, limit_tokens: int) -> Match:
    """Looks up a key; `limit_tokens` caps the boundary (rule M-3).

    Cost: one comparison of the tokens, plus O(nodes on the path x components) when the tail refuses.
    """
    root = state.roots.get(namespace)
    limit = min(limit_tokens, len(tokens)) // state.page_tokens
    if root is None:
        return nothing_known(state, namespace)
    path, known = walk(state, root, tokens[: limit * state.page_tokens])
    everyone = range(len(state.specs))
    boundary = deepest_on_path(state, path, everyone, known)
    votes = tuple(vote(state, path, component, boundary, known) for component in everyone)
    branch = branch_point(state, votes, boundary, known)
    page = state.page_tokens
    limiting = limiting_component(votes, boundary, known, page)
    return Match(
        namespace=namespace,
        boundary_tokens=boundary * page,
        path_tokens=known * page,
        votes=votes,
        limited_by="" if limiting is None else state.specs[limiting].name,
        lost_tokens=(known - boundary) * page,
        reason="" if limiting is None else refusal(state, path, limiting, votes[limiting], known),
        branch_tokens=branch * page,
        node=node_at(root, path, boundary).ident,
        path_node=path[-1].ident if path else root.ident,
    )


def nothing_known(state: State, namespace: Namespace) -> Match:
    """The match of a namespace that the tree has never seen."""
    votes = tuple(Vote(spec.name, 0, 0) for spec in state.specs)
    return Match(namespace, 0, 0, votes, "", 0, "", 0, 0, 0)


def walk(state: State, root: Node, tokens: Tokens) -> tuple[Path, int]:
    """Nodes along the key, from the first one, and how many pages of the key they know."""
    path: Path = []
    node, known = root, 0
    while len(tokens) > known * state.page_tokens:
        rest = tokens[known * state.page_tokens :]
        child = node.children.get(state.child_key(rest))
        if child is None:
            break
        common = state.common_pages(child, rest)
        path.append(child)
        known += common
        node = child
        if common < child.pages:
            break
    return path, known


def deepest_on_path(state: State, path: Path, components: Sequence[int], limit: int) -> int:
    """Deepest boundary on the path that all given components accept, in pages."""
    for node in reversed(path):
        boundary = deepest_agreed(state, node, components, limit) if node.start < limit else 0
        if boundary:
            return boundary
    return 0


def vote(state: State, path: Path, component: int, boundary: int, known: int) -> Vote:
    """What one component alone accepts, and what the others would accept without it (rule M-4)."""
    page = state.page_tokens
    if boundary == known:  # nothing was lost: nobody need be asked
        return Vote(state.specs[component].name, boundary * page, boundary * page)
    others = [index for index in range(len(state.specs)) if index != component]
    own = deepest_on_path(state, path, [component], known)
    without = deepest_on_path(state, path, others, known) if others else known
    return Vote(state.specs[component].name, own * page, without * page)


def limiting_component(votes: Sequence[Vote], boundary: int, known: int, page_tokens: int) -> int | None:
    """The component without which most would have been won; else the one that accepts least (rule M-4)."""
    if boundary == known:
        return None
    gains = [vote.without_tokens for vote in votes]
    if max(gains) > boundary * page_tokens:
        return gains.index(max(gains))
    own = [vote.boundary_tokens for vote in votes]
    return own.index(min(own))


def refusal(state: State, path: Path, component: int, vote: Vote, known: int) -> str:
    """Why a component refuses the boundary that it cost: a value was evicted, or never was there."""
    page = state.page_tokens
    wanted = vote.without_tokens // page
    if wanted <= vote.boundary_tokens // page:
        wanted = known
    first = state.first_page(component, wanted)
    for node in path:
        holding = holding_of(node, component)
        if node.end > first and node.start < wanted and holding.lost:
            return "evicted"
    return state.specs[component].rule.refusal


def branch_point(state: State, votes: Sequence[Vote], boundary: int, known: int) -> int:
    """Deepest boundary that keeping a window or checkpoint anew would open; 0 for none (rule M-5)."""
    closed = [v.boundary_tokens for i, v in enumerate(votes) if state.closed(i)]
    deepest = min(closed) // state.page_tokens if closed else known
    return deepest if deepest > boundary else 0


def node_at(root: Node, path: Path, boundary: int) -> Node:
    """Node in which a boundary of the path lies; the root for 0."""
    if boundary == 0 or not path:
        return root
    for node in path_up(path[-1]):
        if node.start < boundary:
            return node
    return root
