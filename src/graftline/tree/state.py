"""The tree's state and the small steps that every operation is made of."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from graftline.components import ComponentSpec
from graftline.errors import ConfigError, StaleHandleError
from graftline.key import Namespace, Tokens
from graftline.plan import Event, Tier
from graftline.policies import EvictionPolicy
from graftline.tree.node import Holding, Node

# One candidate for eviction: (dead or live, level, rank, tick, start, node, version).
Candidate = tuple[int, int, float, int, int, int, int]
KIND: Final = 0
NODE: Final = 5
VERSION: Final = 6
DEAD, LIVE = 0, 1


@dataclass(slots=True)
class LeaseRecord:
    """A lease that is out: the node at whose end its boundary lies, and the components it still protects."""

    node: Node
    boundary: int
    components: set[int]


@dataclass(slots=True)
class SessionRecord:
    """An open session; rules S-1 to S-7.

    Attributes:
        priority, expected_return_s: its hints; None for a return that nobody told.
        last_s: when it was opened, registered or forked into last.
        node: node at whose end its frontier is; None where nothing of its path is left.
        boundary: the boundary that was registered last, in pages; the references start where it needs pages.
    """

    handle: int
    priority: int
    expected_return_s: float | None
    last_s: float
    node: Node | None = None
    boundary: int = 0


@dataclass(slots=True)
class Counters:
    """Pages of one component: kept up to date, never found by walking."""

    held: int = 0
    leased: int = 0
    dead: int = 0


@dataclass(slots=True)
class State:
    """Everything that the core knows.

    `namespace_candidates` are those of one namespace and component, kept from the first time on that
    something was evicted from there alone; `namespace_held` counts held pages by component.

    `evictions` counts calls of evict since all candidates of a component were asked (rule P-7).

    `clock` counts uses (rule P-1); `idents` gives handles that are never used twice (rule T-6). `sessions`
    are in the order of `last_s`, the one idle longest first; `names` finds them by their handle.
    """

    specs: tuple[ComponentSpec, ...]
    page_tokens: int
    policy: EvictionPolicy
    record_events: bool
    tier: Tier
    session_ttl_s: float
    max_sessions: int
    nodes: dict[int, Node] = field(default_factory=dict)
    roots: dict[Namespace, Node] = field(default_factory=dict)
    leases: dict[int, LeaseRecord] = field(default_factory=dict)
    sessions: dict[str, SessionRecord] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    candidates: list[list[Candidate]] = field(default_factory=list)
    live_candidates: list[int] = field(default_factory=list)
    evictions: list[int] = field(default_factory=list)
    namespace_candidates: dict[tuple[Namespace, int], list[Candidate]] = field(default_factory=dict)
    namespace_held: dict[Namespace, list[int]] = field(default_factory=dict)
    counters: list[Counters] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    path_pages: int = 0
    clock: int = 0
    now_s: float = 0.0
    idents: int = 0

    def __post_init__(self) -> None:
        self.candidates = [[] for _ in self.specs]
        self.live_candidates = [0 for _ in self.specs]
        self.evictions = [0 for _ in self.specs]
        self.counters = [Counters() for _ in self.specs]
        self.policy.bind(self.specs)

    # -- small questions -------------------------------------------------------------------------

    def component(self, name: str) -> int:
        """Index of a component.

        Raises:
            ConfigError: no component has that name.
        """
        for index, spec in enumerate(self.specs):
            if spec.name == name:
                return index
        known = ", ".join(spec.name for spec in self.specs)
        raise ConfigError(f"no component is named '{name}'", hint=f"the components are {known}")

    def first_page(self, component: int, boundary: int) -> int:
        """First page that `boundary` (in pages) needs of a component."""
        return self.specs[component].rule.first_page(boundary, self.page_tokens)

    def closed(self, component: int) -> bool:
        """Whether the component's values leave from the tail of a path only (rule E-3)."""
        return self.specs[component].rule.prefix_closed

    def node(self, handle: int) -> Node:
        """Node of a handle; raises `StaleHandleError` when it is gone."""
        node = self.nodes.get(handle)
        if node is None:
            raise StaleHandleError(f"node {handle} is not in the tree any more", hint="match again")
        return node

    def lease_record(self, handle: int) -> LeaseRecord:
        """Record of a lease; raises `StaleHandleError` when it was released."""
        record = self.leases.get(handle)
        if record is None:
            raise StaleHandleError(f"lease {handle} was released before", hint="release a lease once")
        return record

    def next_ident(self) -> int:
        """A handle never used before."""
        self.idents += 1
        return self.idents

    # -- topology ----------------------------------------------------------------------------------

    def root(self, namespace: Namespace) -> Node:
        """Root of a namespace, made when it is first leased."""
        root = self.roots.get(namespace)
        if root is None:
            root = Node(self.next_ident(), namespace, None, 0, len(self.specs))
            self.roots[namespace] = root
            self.nodes[root.ident] = root
            self.namespace_held[namespace] = [0 for _ in self.specs]
        return root

    def forget_root(self, root: Node) -> None:
        """Forgets a namespace of which nothing is left."""
        del self.nodes[root.ident], self.roots[root.namespace], self.namespace_held[root.namespace]
        for component in range(len(self.specs)):
            self.namespace_candidates.pop((root.namespace, component), None)

    def count_held(self, node: Node, component: int, pages: int) -> None:
        """Counts pages that came to a node or left it (rule L-5)."""
        self.counters[component].held += pages
        self.namespace_held[node.namespace][component] += pages

    def child_key(self, tokens: Tokens) -> bytes:
        """What a child is found by: the tokens of its first page."""
        return tokens[: self.page_tokens].tobytes()

    def common_pages(self, node: Node, tokens: Tokens) -> int:
        """How many whole pages of the node begin `tokens`."""
        count = min(node.pages, len(tokens) // self.page_tokens)
        mine, theirs = node.tokens[: count * self.page_tokens], tokens[: count * self.page_tokens]
        if np.array_equal(mine, theirs):
            return count
        return int(np.argmax(mine != theirs)) // self.page_tokens

    def add_leaf(self, parent: Node, tokens: Tokens) -> Node:
        """A new node below `parent` that holds nothing yet; the tokens are copied."""
        node = Node(self.next_ident(), parent.namespace, parent, parent.end, len(self.specs))
        node.tokens = tokens.copy()
        node.pages = len(tokens) // self.page_tokens
        self.path_pages += node.pages
        parent.children[self.child_key(tokens)] = node
        self.nodes[node.ident] = node
        return node


def path_up(node: Node) -> Iterator[Node]:
    """The node and its ancestors, the root left out."""
    while node.parent is not None:
        yield node
        node = node.parent


def holding_of(node: Node, component: int) -> Holding:
    """What a component holds of a node."""
    return node.holdings[component]


def push_candidate(state: State, component: int, candidate: Candidate) -> None:
    """Adds a candidate; entries that became invalid are swept when they outnumber the valid ones."""
    queues = [state.candidates[component]]
    if state.namespace_candidates:
        namespace = state.nodes[candidate[NODE]].namespace
        if (namespace, component) in state.namespace_candidates:
            queues.append(state.namespace_candidates[namespace, component])
    for queue in queues:
        heapq.heappush(queue, candidate)
        if len(queue) > 64 + 2 * state.live_candidates[component]:
            queue[:] = [entry for entry in queue if is_valid(state, component, entry)]
            heapq.heapify(queue)


def candidates_of(state: State, component: int, namespace: Namespace | None) -> list[Candidate]:
    """The queue of a component, or that of one namespace in it, which is made when it is asked for first."""
    if namespace is None:
        return state.candidates[component]
    if namespace not in state.roots:
        return []
    queue = state.namespace_candidates.get((namespace, component))
    if queue is None:
        valid = [entry for entry in state.candidates[component] if is_valid(state, component, entry)]
        queue = [entry for entry in valid if state.nodes[entry[NODE]].namespace == namespace]
        heapq.heapify(queue)
        state.namespace_candidates[namespace, component] = queue
    return queue


def is_valid(state: State, component: int, candidate: Candidate) -> bool:
    """Whether a candidate still describes its node."""
    node = state.nodes.get(candidate[NODE])
    return node is not None and holding_of(node, component).version == candidate[VERSION]
