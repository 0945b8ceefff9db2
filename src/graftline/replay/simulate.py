"""Drives the real cache with the requests of a trace, without a model.

What runs is `graftline.cache.PrefixCache` over a real tree core, with its stops (rule C-5), checkpoints,
leases and ownership of slots; only the values are missing: pools are of no bytes, and the engine is a cost
model. A page is given to the core as two words (`tokens.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from graftline.cache import CachedRequest, PrefixCache
from graftline.cache.placement import EVERYWHERE, Placement
from graftline.cache.sessions import Session, SessionLimits
from graftline.components import Chunk, ComponentSpec, Window
from graftline.errors import CapacityError, ConfigError
from graftline.plan import Match
from graftline.policies import Lru, make_policy
from graftline.replay.compositions import Composition, scaled, scaled_placement, window_pages
from graftline.replay.cost import CostModel
from graftline.replay.tally import PoolFigures, RunFigures, Tally
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, answer_key, prompt_key

DEFAULT_CHUNK_TOKENS = 2048

Progress = Callable[[int], None]


Observer = Callable[[PagedRequest, Match | None], None]
"""Told of each request in turn: what was found, or None when it was refused."""


def no_progress(requests: int) -> None:
    """Tells nobody."""


def unobserved(paged: PagedRequest, match: Match | None) -> None:
    """Looks at nothing."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is replayed.

    Attributes:
        composition: the model's components.
        slots: places of each component's device pool.
        page_tokens: tokens a page.
        policy: order of eviction, as `make_policy` reads it.
        core: which tree core keeps the books, as for `PrefixCache`.
        cost: how long things take.
        chunk_tokens: how much of a prompt is computed at once; matters to windows, whose pool must hold
            the window and one chunk.
        slot_bytes: bytes of a slot, by component; for orders of eviction that weigh bytes.
        sessions: whether the cache is told of the sessions that the trace names.
        infer_sessions: whether the cache infers the sessions of requests that it is not told of (rule S-9).
        session_ttl_s: how long an idle session stays open, by the trace's arrival times.
        placement: which boundaries get windows and checkpoints.
        last_turns: sessions that are closed, as their client would, after the turn of that number.
    """

    composition: Composition
    slots: Mapping[str, int]
    page_tokens: int
    policy: str = Lru.name
    core: str = "auto"
    cost: CostModel = field(default_factory=CostModel)
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    slot_bytes: Mapping[str, int] = field(default_factory=dict)
    sessions: bool = True
    session_ttl_s: float = SessionLimits().ttl_s
    placement: Placement = EVERYWHERE
    infer_sessions: bool = True
    last_turns: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_policy(self.policy)
        if self.chunk_tokens < 1:
            raise ConfigError(f"chunk_tokens is {self.chunk_tokens}, it must be at least 1")
        for name, least in least_slots(self.composition, self.page_tokens, self.chunk_tokens).items():
            if self.slots.get(name, 0) < least:
                raise ConfigError(
                    f"component '{name}' has {self.slots.get(name, 0)} slots, one request needs {least}",
                    hint=f"give it at least {least}",
                )

    @property
    def chunk_pages(self) -> int:
        """Pages computed at once, at least one."""
        return max(1, self.chunk_tokens // self.page_tokens)


def least_slots(composition: Composition, page_tokens: int, chunk_tokens: int) -> dict[str, int]:
    """Slots with which each pool can serve any request that the prefix-closed pools can hold.

    A window's pool holds the window before the lease's boundary, what was computed behind it, and
    one step; what lies two windows back has been given back (rule C-9). The same goes for chunks.
    """
    step_pages = max(1, chunk_tokens // page_tokens)
    least = {}
    for name, rule in composition.rules:
        least[name] = 1
        if isinstance(rule, Window):
            least[name] = 2 * window_pages(rule, page_tokens) + step_pages + 2
        elif isinstance(rule, Chunk):
            least[name] = 2 * -(-rule.chunk_tokens // page_tokens) + step_pages + 2
    return least


class NoValues:
    """A pool of no bytes: copying a state costs nothing here."""

    def copy(self, source: int, target: int) -> None:
        """Nothing to copy."""


class Replayer:
    """Serves requests of a trace from one cache.

    Attributes:
        cache: the real one.
        tally: what was counted.
    """

    def __init__(self, setup: Setup, *, record_events: bool = False) -> None:
        self.setup = setup
        specs = [
            ComponentSpec(
                name,
                scaled(rule, setup.page_tokens),
                setup.slots[name],
                slot_bytes=setup.slot_bytes.get(name, 0),
            )
            for name, rule in setup.composition.rules
        ]
        self.cache = PrefixCache(
            specs,
            page_tokens=KEY_TOKENS,
            pools={spec.name: NoValues() for spec in specs if spec.rule.holds_state},
            core=setup.core,
            policy=setup.policy,
            record_events=record_events,
            sessions=SessionLimits(ttl_s=setup.session_ttl_s, infer=setup.infer_sessions),
        )
        self.cache.placement = scaled_placement(setup.placement, setup.page_tokens)
        self.tally = Tally(setup.page_tokens, KEY_TOKENS)
        self._closed_slots = min((spec.slots for spec in specs if spec.rule.prefix_closed), default=None)
        # Whether a prompt is computed in chunks shows in the pools only where something is left behind.
        is_chunked = not all(spec.rule.prefix_closed or spec.rule.holds_state for spec in specs)
        self._step_words = setup.chunk_pages * KEY_TOKENS if is_chunked else None

    def arrive(self, paged: PagedRequest) -> bool:
        """Counts a request; False when it is refused, as the prefix-closed pools can never hold it."""
        self.tally.arrived(paged.request.turn, paged.request.prompt_tokens)
        if self.fits(paged):
            return True
        self.tally.refused += 1
        return False

    def fits(self, paged: PagedRequest) -> bool:
        """Whether the prefix-closed pools can hold a request at all."""
        return self._closed_slots is None or paged.occupied_pages <= self._closed_slots

    def begin(self, paged: PagedRequest, *, beside_others: bool = False) -> CachedRequest:
        """Looks the prompt up and computes the rest of it.

        Args:
            paged: the request.
            beside_others: whether other requests run. Then room is looked for first: a request that had to
                stop halfway would find what it had computed itself when it is tried again.

        Raises:
            CapacityError: others hold what it needs; it has given everything back.
        """
        session = self.session(paged)
        running = self.cache.begin(prompt_key(paged), session=session)
        try:
            if beside_others:
                self._require_room(paged, running)
            self._compute(running)
        except CapacityError:
            running.abort()
            raise
        return running

    def session(self, paged: PagedRequest) -> Session | None:
        """Whose request it is; None where the trace does not tell, or the cache is not to know."""
        name = paged.request.session
        return Session(name) if self.setup.sessions and name != paged.request.ident else None

    def finish(self, paged: PagedRequest, running: CachedRequest) -> None:
        """Computes the answer and ends the request; what was computed is kept.

        Raises:
            CapacityError: others hold what it needs; it has ended, its prompt is kept.
        """
        with running:
            running.append(answer_key(paged))
            self._compute(running)
            # A page has two words, so it is told to half a page; where the trace does not tell, as nothing.
            words = paged.request.answer_tokens * KEY_TOKENS / self.setup.page_tokens
            running.finish(answer_tokens=round(words))
        if self.setup.last_turns.get(paged.request.session) == paged.request.turn:
            self.cache.close_session(paged.request.session)

    def serve(self, paged: PagedRequest) -> Match:
        """A request from its start to its end, alone, at its time of arrival."""
        self.cache.set_time(paged.request.arrival_s)
        running = self.begin(paged)
        self.finish(paged, running)
        return running.match

    def _require_room(self, paged: PagedRequest, running: CachedRequest) -> None:
        """Whether the prompt can be computed to its end with what others leave.

        What no lease protects can be evicted, all of it, so the room is known exactly.
        """
        least = least_slots(self.setup.composition, self.setup.page_tokens, self.setup.chunk_tokens)
        boundary = running.match.boundary_tokens // KEY_TOKENS
        for spec, use in zip(self.cache.components, self.cache.uses(), strict=True):
            if spec.rule.holds_state:  # its live state is there; checkpoints without room are left out
                continue
            own = boundary - spec.rule.first_page(boundary, KEY_TOKENS)
            needed = paged.prompt_slots if spec.rule.prefix_closed else least[spec.name]
            room = use.capacity - use.private - use.leased + own
            if room < needed:
                raise CapacityError(spec.name, needed, room)

    def _compute(self, running: CachedRequest) -> None:
        end = len(running.tokens)
        while running.computed_tokens < end:
            to = running.next_stop()
            if self._step_words is not None:
                step_end = running.computed_tokens // KEY_TOKENS * KEY_TOKENS + self._step_words
                to = min(to, step_end)
            running.grow(to)
            running.advance(to)

    def figures(self, span_s: float, wall_s: float) -> RunFigures:
        """The result so far."""
        pools = tuple(
            PoolFigures(use.component, use.capacity, use.held, self.cache.evicted_slots[use.component])
            for use in self.cache.uses()
        )
        return self.tally.figures(pools, self.cache.skipped_checkpoints, span_s, wall_s)


def last_turns(trace: Iterable[PagedRequest]) -> dict[str, int]:
    """Number of each session's last turn."""
    return {paged.request.session: paged.request.turn for paged in trace}


def simulate(
    trace: Iterable[PagedRequest],
    setup: Setup,
    progress: Progress = no_progress,
    observe: Observer = unobserved,
) -> RunFigures:
    """Replays a trace one request at a time, in its order: what is reused depends on nothing but the cache.

    Args:
        trace: the requests.
        setup: what is replayed.
        progress: told how many requests were served since the last time.
        observe: told what was found for each request.
    """
    started = time.perf_counter()
    replayer = Replayer(setup)
    for paged in trace:
        match: Match | None = None
        if replayer.arrive(paged):
            match = replayer.serve(paged)
            request = paged.request
            computed = request.prompt_tokens - match.boundary_tokens // KEY_TOKENS * setup.page_tokens
            replayer.tally.served(
                request.turn, request.prompt_tokens, match, setup.cost.first_token_s(computed)
            )
        observe(paged, match)
        progress(1)
    return replayer.figures(0.0, time.perf_counter() - started)
