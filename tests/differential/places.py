"""What the oracle keeps, where things are, and what the rules of reuse say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from graftline.components import ComponentSpec
from graftline.errors import ConfigError, StaleHandleError
from graftline.key import Namespace
from graftline.plan import Event, Lease, Tier
from graftline.policies import EvictionPolicy, Usage, as_policy

Key = tuple[Namespace, tuple[int, ...]]


@dataclass
class Page:
    """One cached page; `use` and `lost` are the same on all pages of a node."""

    node: int
    slots: dict[str, int] = field(default_factory=dict)
    use: dict[str, Usage] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


@dataclass
class LeaseNote:
    """A lease that is out: its boundary, and the components that it still protects."""

    end: Key
    components: set[str]


@dataclass
class SessionNote:
    """An open session: its hints, when it was used last, what was registered, and what is left of that."""

    handle: int
    priority: int
    expected_return_s: float | None
    last_s: float
    registered: Key | None = None
    frontier: Key | None = None


class Places:
    """One dictionary of pages, the leases and the sessions; nothing here changes more than labels."""

    def __init__(
        self,
        specs: Sequence[ComponentSpec],
        *,
        page_tokens: int,
        policy: EvictionPolicy | str | None = None,
        record_events: bool = False,
        tier: Tier = Tier.DEVICE,
        session_ttl_s: float = 3600.0,
        max_sessions: int = 100_000,
    ) -> None:
        self.specs = tuple(specs)
        self.page_tokens = page_tokens
        self.names = [spec.name for spec in specs]
        self.rules = {spec.name: spec.rule for spec in specs}
        self.closed = [spec.name for spec in specs if spec.rule.prefix_closed]
        self.policy = as_policy(policy)
        self.policy.bind(self.specs)
        self.tier = tier
        self.session_ttl_s = session_ttl_s
        self.max_sessions = max_sessions
        self.sessions: dict[str, SessionNote] = {}
        self.now_s = 0.0
        self.pages: dict[Key, Page] = {}
        self.leases: dict[int, LeaseNote] = {}
        self.events: list[Event] = []
        self.clock = 0
        self.evictions = dict.fromkeys(self.names, 0)
        self.last_label = 0
        self.found: dict[object, Any] = {}  # what was found since the last change of a page
        self.needed: dict[tuple[str, Key], list[Key]] = {}  # answers of the rules, which never change

    # -- places: what is where -----------------------------------------------------------------------

    def pages_of(self, key: Key) -> int:
        """A prefix's length in pages."""
        return len(key[1]) // self.page_tokens

    def prefix(self, key: Key, boundary: int) -> Key:
        """The first `boundary` pages of a prefix."""
        return key[0], key[1][: boundary * self.page_tokens]

    def path(self, key: Key, first: int, end: int) -> list[Key]:
        """Pages `first` to `end` of a prefix."""
        return [self.prefix(key, page + 1) for page in range(first, end)]

    def below(self, key: Key) -> list[Key]:
        """Every page that lies deeper on a path through `key`."""
        if ("below", key) not in self.found:
            deeper = [k for k in self.pages if len(k[1]) > len(key[1])]
            self.found["below", key] = [k for k in deeper if self.prefix(k, self.pages_of(key)) == key]
        return self.found["below", key]

    def by_label(self) -> dict[int, list[Key]]:
        """Nodes by label, the pages of each shallow before deep."""
        if "nodes" not in self.found:
            nodes: dict[int, list[Key]] = {}
            for key in sorted(self.pages, key=self.pages_of):
                nodes.setdefault(self.pages[key].node, []).append(key)
            self.found["nodes"] = nodes
        return self.found["nodes"]

    def nodes(self) -> list[list[Key]]:
        """All nodes."""
        return list(self.by_label().values())

    def node(self, label: int) -> list[Key]:
        """Pages of one node, shallow before deep; empty when it is gone."""
        return self.by_label().get(label, [])

    def nodes_on(self, key: Key) -> list[list[Key]]:
        """Nodes that a prefix runs through, shallow before deep."""
        labels = dict.fromkeys(self.pages[k].node for k in self.path(key, 0, self.pages_of(key)))
        return [self.node(label) for label in labels]

    def held_in(self, node: Iterable[Key], name: str) -> list[Key]:
        """Pages of a node that a component holds."""
        return [k for k in node if name in self.pages[k].slots]

    def new_label(self) -> int:
        """The label of a new node; never used twice (T-6)."""
        self.last_label += 1
        return self.last_label

    def cut(self, key: Key) -> None:
        """Ends a node at `key`; the handle stays with the deeper half (T-5)."""
        if key not in self.pages:
            return
        node = self.node(self.pages[key].node)
        if node[-1] == key:
            return
        label = self.new_label()
        for k in node[: node.index(key) + 1]:
            self.pages[k].node = label
        self.found.clear()

    # -- rules: where reuse is valid, what is alive, what is leased ----------------------------------

    def needs(self, name: str, key: Key) -> list[Key]:
        """Pages that the boundary at the end of `key` needs of a component."""
        if (name, key) not in self.needed:
            boundary = self.pages_of(key)
            first = self.rules[name].first_page(boundary, self.page_tokens)
            self.needed[name, key] = self.path(key, first, boundary)
        return self.needed[name, key]

    def valid(self, key: Key, names: Iterable[str]) -> bool:
        """R-1: all pages that the boundary needs are held."""
        return all(
            k in self.pages and name in self.pages[k].slots for name in names for k in self.needs(name, key)
        )

    def agreed(self) -> set[Key]:
        """Every boundary that is valid for all components, by the page before it."""
        if "agreed" not in self.found:
            self.found["agreed"] = {key for key in self.pages if self.valid(key, self.names)}
        return self.found["agreed"]

    def deepest(self, key: Key, names: Sequence[str]) -> int:
        """Deepest boundary along `key` that is valid for all the components named (M-2)."""
        return next(b for b in range(self.pages_of(key), -1, -1) if self.valid(self.prefix(key, b), names))

    def live_pages(self, node: list[Key], name: str) -> set[Key]:
        """E-1: hull of the pages that the agreed boundaries in and below a node need."""
        if ("live", node[-1], name) not in self.found:
            self.found["live", node[-1], name] = self.find_live_pages(node, name)
        return self.found["live", node[-1], name]

    def find_live_pages(self, node: list[Key], name: str) -> set[Key]:
        """`live_pages`, found anew."""
        start, end = self.pages_of(node[0]) - 1, self.pages_of(node[-1])
        inside = [k for k in node if k in self.agreed()]
        beneath = [k for k in self.below(node[-1]) if k in self.agreed()]
        spans = []
        if inside:
            spans.append((self.first_needed(name, inside), max(map(self.pages_of, inside))))
        if beneath:
            spans.append((self.first_needed(name, beneath), end))
        spans = [(max(start, first), last) for first, last in spans if max(start, first) < last]
        if not spans:
            return set()
        hull = range(min(first for first, _ in spans), max(last for _, last in spans))
        return {k for k in node if self.pages_of(k) - 1 in hull}

    def first_needed(self, name: str, boundaries: Iterable[Key]) -> int:
        """First page that the shallowest of some boundaries needs."""
        return self.rules[name].first_page(min(map(self.pages_of, boundaries)), self.page_tokens)

    def leases_of(self, key: Key, name: str) -> list[Key]:
        """Boundaries of the leases that protect a page for a component (L-1), held or not (L-2)."""
        return [
            note.end
            for note in self.leases.values()
            if name in note.components and key in self.needs(name, note.end)
        ]

    # -- handles ----------------------------------------------------------------------------------------

    def note(self, lease: Lease) -> LeaseNote:
        """The record of a lease that is out."""
        if lease.handle not in self.leases:
            raise StaleHandleError("lease was released")
        return self.leases[lease.handle]

    def known_name(self, name: str) -> None:
        """Refuses a component that is not there."""
        if name not in self.names:
            raise ConfigError(f"no component '{name}'")
