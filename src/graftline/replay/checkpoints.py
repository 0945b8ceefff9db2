"""Which kept states are hit: each state is labelled by the boundary that it was kept for, and credited.

A replay through the real cache, with every event looked at. It shows what a placement of checkpoints wins
with each kind of boundary, and, for conversations, how far from the newest state of its session a hit lies:
what thinning to the newest few would cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graftline.errors import ConfigError
from graftline.key import Namespace, page_keys
from graftline.plan import Event, Match
from graftline.replay.simulate import Replayer, Setup
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, key_words

OTHER = "another session"
RANKS_SHOWN = 4


@dataclass(slots=True)
class Credit:
    """Of the states kept for one kind of boundary.

    Attributes:
        kept: how many came into the tree.
        hit: how many of them were hit at least once.
        hits: how often any of them was.
        hit_tokens: tokens reused by requests that began at them.
    """

    kept: int = 0
    hit: int = 0
    hits: int = 0
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CreditFigures:
    """Result of a replay.

    Attributes:
        by_kind: `replay`, `end` (also where both are the same boundary), `branch`, `answer`, `grid`.
        tokens_by_rank: reused tokens by how many newer states the session of the request had when it hit
            (the last place stands for that many or more); or under `another session`.
        reused_tokens: of all requests.
        prompt_tokens: of all requests.
    """

    by_kind: Mapping[str, Credit]
    tokens_by_rank: Mapping[str, int]
    reused_tokens: int
    prompt_tokens: int


@dataclass(slots=True)
class KeptState:
    """A state in the tree: its kind, its session, and its place among the states of the session."""

    kind: str
    session: str
    place: int
    was_hit: bool = False


@dataclass(slots=True)
class Ledger:
    """Books states as they come, are hit, and leave; states are known by their page's key.

    Attributes:
        component: the component that keeps states.
        states: those in the tree.
        newest: how many states each session ever kept.
    """

    component: str
    page_tokens: int
    states: dict[bytes, KeptState] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_kind: dict[str, Credit] = field(default_factory=lambda: defaultdict(Credit))
    by_rank: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def hit(self, key: bytes, session: str, pages: int) -> None:
        """A request of a session began at a state."""
        state = self.states[key]
        credit = self.by_kind[state.kind]
        credit.hit += not state.was_hit
        credit.hits += 1
        credit.hit_tokens += pages * self.page_tokens
        state.was_hit = True
        rank = min(self.newest[session] - 1 - state.place, RANKS_SHOWN)
        self.by_rank[str(rank) if state.session == session else OTHER] += pages * self.page_tokens

    def take(self, events: Iterable[Event], paged: PagedRequest, match: Match) -> None:
        """Events of one request."""
        for event in events:
            if event.component != self.component:
                continue
            for place, key in enumerate(event.page_keys):
                if event.kind == "removed":
                    del self.states[key]
                    continue
                kind = kind_of(event.first_page + place + 1, paged, match)
                session = paged.request.session
                self.states[key] = KeptState(kind, session, self.newest[session])
                self.newest[session] += 1
                self.by_kind[kind].kept += 1


def kind_of(boundary: int, paged: PagedRequest, match: Match) -> str:
    """For what a request kept a boundary, in pages."""
    whole = len(paged.pages)
    if boundary > whole:
        return "answer"
    if boundary == whole:
        return "end"
    if boundary == match.branch_tokens // KEY_TOKENS:
        return "branch"
    return "replay" if boundary == paged.limit_pages else "grid"


def credit_states(trace: Iterable[PagedRequest], setup: Setup) -> CreditFigures:
    """Replays a trace one request at a time and credits each state that is hit.

    Raises:
        ConfigError: the composition has no component with states, or several.
    """
    names = [name for name, rule in setup.composition.rules if rule.holds_state]
    if len(names) != 1:
        raise ConfigError(f"composition '{setup.composition.name}' has {len(names)} components with states")
    replayer = Replayer(setup, record_events=True)
    ledger = Ledger(names[0], setup.page_tokens)
    reused = prompt = 0
    for paged in trace:
        prompt += paged.request.prompt_tokens
        if not replayer.arrive(paged):
            continue
        match = replayer.serve(paged)
        pages = match.boundary_tokens // KEY_TOKENS
        if pages:
            ledger.hit(key_at(paged, pages), paged.request.session, pages)
        reused += pages * setup.page_tokens
        ledger.take(replayer.cache.take_events(), paged, match)
    return CreditFigures(dict(ledger.by_kind), dict(ledger.by_rank), reused, prompt)


def key_at(paged: PagedRequest, pages: int) -> bytes:
    """Chained key of the page before a boundary. Cost: O(pages)."""
    *_, last = page_keys(Namespace().seed(), key_words(paged.pages[:pages]), KEY_TOKENS)
    return last
