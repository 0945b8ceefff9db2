"""The readable tree core: one method an operation, each told in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graftline.components import ComponentSpec
from graftline.errors import ConfigError
from graftline.key import Namespace, TokensLike, as_tokens
from graftline.plan import Event, Freed, Held, Insertion, Lease, Match, PoolStats, Tier, TreeStats
from graftline.policies import EvictionPolicy, as_policy
from graftline.tree.check import check
from graftline.tree.claim import claim, holdings
from graftline.tree.drop import drop
from graftline.tree.dump import dump
from graftline.tree.evict import clear, evict
from graftline.tree.insert import insert
from graftline.tree.lease import lease, release, release_components
from graftline.tree.match import match
from graftline.tree.protocol import check_session_limits, check_specs
from graftline.tree.sessions import close_session, fork_session, open_session, register, set_time
from graftline.tree.state import State


class PythonCore:
    """A tree core in plain Python.

    Args:
        specs: the components, in the order in which they are reported.
        page_tokens: tokens a page.
        policy: order of eviction, or the text that `make_policy` takes; least recently used by default.
        record_events: whether `take_events` has something to give.
        tier: where the values lie; only events and `stats` tell it.
        session_ttl_s: a session idle for longer is closed (rule S-2).
        max_sessions: when one more is opened, the one idle longest is closed.

    Raises:
        ConfigError: no component, two of one name, a page of less than one token, or a limit that
            leaves no session.
    """

    name = "python"

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
        check_specs(specs, page_tokens)
        check_session_limits(session_ttl_s, max_sessions)
        self.specs = tuple(specs)
        self.page_tokens = page_tokens
        self._state = State(
            specs=self.specs,
            page_tokens=page_tokens,
            policy=as_policy(policy),
            record_events=record_events,
            tier=tier,
            session_ttl_s=session_ttl_s,
            max_sessions=max_sessions,
        )

    def match(self, namespace: Namespace, tokens: TokensLike, limit_tokens: int | None = None) -> Match:
        """Longest reusable prefix of `tokens`, at most `limit_tokens` long; changes nothing (rule M-1)."""
        key = as_tokens(tokens)
        limit = len(key) if limit_tokens is None else limit_tokens
        if limit < 0:
            raise ConfigError(f"limit_tokens is {limit}, it must not be negative")
        return match(self._state, namespace, key, limit)

    def lease(self, match: Match) -> Lease:
        """Protects what the match's boundary needs, and counts a use (rules L-1, P-1)."""
        return lease(self._state, match)

    def claim(self, match: Match, boundary_tokens: int) -> Lease:
        """Protects what any boundary of the match's known path needs; counts no use (rule L-6)."""
        return claim(self._state, match, boundary_tokens)

    def holdings(self, match: Match, boundary_tokens: int) -> dict[str, tuple[Held, ...]]:
        """What is held of the pages that a boundary needs; changes nothing (rule L-7)."""
        return holdings(self._state, match, boundary_tokens)

    def release(self, lease: Lease) -> None:
        """Gives a lease back."""
        release(self._state, lease.handle)

    def release_components(self, lease: Lease, names: Sequence[str]) -> None:
        """Lets some components of a lease go before the rest (rule L-3)."""
        release_components(self._state, lease.handle, names)

    def insert(
        self,
        lease: Lease,
        tokens: TokensLike,
        values: Mapping[str, Sequence[Held]],
        *,
        move_lease: bool = False,
    ) -> Insertion:
        """Adds the pages of `tokens`, which follow on the lease's boundary (rules N-1 to N-6)."""
        return insert(self._state, lease, as_tokens(tokens), values, move_lease)

    def evict(self, component: str, slots: int, namespace: Namespace | None = None) -> Freed:
        """Frees up to `slots` slots of a component, of one namespace if told (rules E-1 to E-6, E-8)."""
        if slots < 0:
            raise ConfigError(f"cannot evict {slots} slots")
        return evict(self._state, self._state.component(component), slots, namespace)

    def drop(self, lease: Lease, component: str, boundary_tokens: int) -> Freed:
        """Takes a state at one boundary of a lease's path out, where nobody else needs it (rule E-9)."""
        return drop(self._state, lease.handle, self._state.component(component), boundary_tokens)

    def held_pages(self, component: str, namespace: Namespace) -> int:
        """Pages that a component holds of one namespace (rule L-5)."""
        held = self._state.namespace_held.get(namespace)
        index = self._state.component(component)
        return held[index] if held else 0

    def clear(self) -> Freed:
        """Frees everything that no lease protects (rule E-7)."""
        return clear(self._state)

    def set_time(self, now_s: float) -> tuple[str, ...]:
        """Tells the time and closes idle sessions (rule S-2)."""
        return set_time(self._state, now_s)

    def open_session(self, name: str, *, priority: int = 0, expected_return_s: float | None = None) -> int:
        """Opens a session, or renews one that is open (rule S-1)."""
        return open_session(self._state, name, priority, expected_return_s)

    def register(self, handle: int, lease: Lease, *, answer_tokens: int | None = None) -> bool:
        """Moves a session's frontier to a lease's boundary (rules S-3, S-4)."""
        return register(self._state, handle, lease.handle, answer_tokens)

    def fork_session(self, source_name: str, target_name: str) -> int:
        """Opens a session with another one's frontier (rule S-6)."""
        return fork_session(self._state, source_name, target_name)

    def close_session(self, name: str) -> bool:
        """Closes a session; whether it was open (rule S-1)."""
        return close_session(self._state, name)

    def take_events(self) -> list[Event]:
        """Events since the last call (rule V-1)."""
        events, self._state.events = self._state.events, []
        return events

    def stats(self) -> TreeStats:
        """Sizes, kept by counters (rule L-5)."""
        state = self._state
        pools = tuple(
            PoolStats(spec.name, state.tier, c.held, c.leased, c.dead)
            for spec, c in zip(state.specs, state.counters, strict=True)
        )
        return TreeStats(
            nodes=len(state.nodes),
            leases=len(state.leases),
            path_pages=state.path_pages,
            pools=pools,
            sessions=len(state.sessions),
        )

    def dump(self) -> str:
        """The tree as text (rule D-1)."""
        return dump(self._state)

    def check(self) -> None:
        """Checks every invariant by walking the whole tree."""
        check(self._state)
