"""The operations of a tree core. Every core has exactly these (rule D-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from graftline.components import ComponentSpec
from graftline.errors import ConfigError
from graftline.key import Namespace, TokensLike
from graftline.plan import Event, Freed, Held, Insertion, Lease, Match, TreeStats


class TreeCore(Protocol):
    """Bookkeeping of cached prefixes: no tensor, no I/O, no clock of its own, one owner thread."""

    name: str
    specs: tuple[ComponentSpec, ...]
    page_tokens: int

    def match(self, namespace: Namespace, tokens: TokensLike, limit_tokens: int | None = None) -> Match:
        """Longest reusable prefix; changes nothing. See `graftline.tree.match`."""

    def lease(self, match: Match) -> Lease:
        """Protects a match's boundary. See `graftline.tree.lease`."""

    def claim(self, match: Match, boundary_tokens: int) -> Lease:
        """Protects any boundary of a match's known path. See `graftline.tree.claim`."""

    def holdings(self, match: Match, boundary_tokens: int) -> Mapping[str, tuple[Held, ...]]:
        """What is held of the pages that a boundary needs; changes nothing. See `graftline.tree.claim`."""

    def release(self, lease: Lease) -> None:
        """Gives a lease back; twice raises `StaleHandleError`."""

    def release_components(self, lease: Lease, names: Sequence[str]) -> None:
        """Lets some components of a lease go early."""

    def insert(
        self,
        lease: Lease,
        tokens: TokensLike,
        values: Mapping[str, Sequence[Held]],
        *,
        move_lease: bool = False,
    ) -> Insertion:
        """Adds pages after a lease's boundary. See `graftline.tree.insert`."""

    def evict(self, component: str, slots: int, namespace: Namespace | None = None) -> Freed:
        """Frees up to `slots` slots of a component. See `graftline.tree.evict`."""

    def drop(self, lease: Lease, component: str, boundary_tokens: int) -> Freed:
        """Takes a superseded state out of the tree. See `graftline.tree.drop`."""

    def held_pages(self, component: str, namespace: Namespace) -> int:
        """Pages that a component holds of one namespace; 0 for one that the tree does not know."""

    def clear(self) -> Freed:
        """Frees everything that no lease protects."""

    def set_time(self, now_s: float) -> tuple[str, ...]:
        """Tells the time, which never goes back; returns the names of the idle sessions that it closed."""

    def open_session(self, name: str, *, priority: int = 0, expected_return_s: float | None = None) -> int:
        """Opens or renews a session; returns its handle. See `graftline.tree.sessions`."""

    def register(self, handle: int, lease: Lease, *, answer_tokens: int | None = None) -> bool:
        """Moves a session's frontier to a lease's boundary; False when the session was closed.

        See `graftline.tree.sessions`.
        """

    def fork_session(self, source_name: str, target_name: str) -> int:
        """Gives one session the frontier of another; returns its handle."""

    def close_session(self, name: str) -> bool:
        """Closes a session; whether it was open."""

    def take_events(self) -> list[Event]:
        """Events since the last call, oldest first; always empty when recording is off."""

    def stats(self) -> TreeStats:
        """Sizes. Cost: O(components)."""

    def dump(self) -> str:
        """The whole tree as text."""

    def check(self) -> None:
        """Raises `IntegrityError` when the bookkeeping contradicts itself."""


def check_specs(specs: Sequence[ComponentSpec], page_tokens: int) -> None:
    """What no core can work with.

    Raises:
        ConfigError: no component, two of one name, or a page of less than one token.
    """
    if page_tokens < 1:
        raise ConfigError(f"page_tokens is {page_tokens}, it must be at least 1")
    names = [spec.name for spec in specs]
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"components {names}: at least one is needed, each with a name of its own")


def check_session_limits(session_ttl_s: float, max_sessions: int) -> None:
    """What would leave no session open.

    Raises:
        ConfigError: a time-to-live that is not more than 0, or a limit of less than one session.
    """
    if not session_ttl_s > 0:
        raise ConfigError(f"session_ttl_s is {session_ttl_s}, it must be more than 0")
    if max_sessions < 1:
        raise ConfigError(f"max_sessions is {max_sessions}, it must be at least 1")
