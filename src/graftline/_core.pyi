"""The binding of the Rust core (`crates/py`). `graftline.tree.rust.RustCore` is what to use.

Arrays of token ids are read where they are: a contiguous u32 array is not copied. Nobody may write to it
while an operation runs, since long operations let other threads run.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Self, TypeVar, final, overload

from typing_extensions import disjoint_base

from graftline.key import Namespace, TokensLike
from graftline.plan import Event, Freed, Held, Insertion, Lease, Match, TreeStats

__all__ = ["HeldMap", "Tree"]

_D = TypeVar("_D")
_P_co = TypeVar("_P_co", bound=Held | tuple[Held, ...], covariant=True)

@disjoint_base
class Tree:
    """A tree core without the checks of its settings.

    `match` may be called by several threads beside the one that changes the tree.

    Args:
        components: name, kind of rule (`full`, `window`, `chunk`, `checkpoint`), tokens of the rule.
        page_tokens: tokens a page.
        policy: the order of eviction, as `graftline.policies.make_policy` takes it.
        record_events: whether `take_events` has something to give.
        tier: number of the tier that events and sizes name.
        session_ttl_s: a session idle for longer is closed (rule S-2).
        max_sessions: when one more is opened, the one idle longest is closed.
    """

    def __new__(
        cls,
        components: Sequence[tuple[str, str, int]],
        page_tokens: int,
        policy: str,
        record_events: bool,
        tier: int = 0,
        *,
        session_ttl_s: float = 3600.0,
        max_sessions: int = 100_000,
    ) -> Self: ...
    def match(self, namespace: Namespace, tokens: TokensLike, limit_tokens: int | None = None) -> Match:
        """Longest reusable prefix of `tokens`, at most `limit_tokens` long; changes nothing (rule M-1).

        Cost: one comparison of the tokens, plus O(nodes on the path x components).
        """

    def lease(self, match: Match) -> Lease:
        """Protects what the match's boundary needs, and counts a use (rules L-1, P-1).

        The slots in `held` are gathered when first looked at, and stay those of the moment of the lease.

        Raises:
            StaleHandleError: the match is out of date.
        """

    def claim(self, match: Match, boundary_tokens: int) -> Lease:
        """Protects a boundary of the match's known path, valid or not, and counts no use (rule L-6).

        Raises:
            ConfigError: not a page boundary of the known path.
            StaleHandleError: the path does not reach it any more.
        """

    def holdings(self, match: Match, boundary_tokens: int) -> dict[str, tuple[Held, ...]]:
        """All runs held before a boundary of the match's known path, needed by it or not; copies (rule L-7).

        Raises:
            ConfigError, StaleHandleError: as `claim`.
        """

    def release(self, lease: Lease) -> None:
        """Gives a lease back; twice raises `StaleHandleError`."""

    def release_components(self, lease: Lease, names: Sequence[str]) -> None:
        """Lets some components of a lease go before the rest (rule L-3)."""

    def insert(
        self,
        lease: Lease,
        tokens: TokensLike,
        values: Mapping[str, Sequence[Held]],
        *,
        move_lease: bool = False,
    ) -> Insertion:
        """Adds the pages of `tokens`, which follow on the lease's boundary (rules N-1 to N-6).

        The slots given are copied; those told are gathered when first looked at.

        Raises:
            ConfigError: pages outside the inserted path, overlapping, or missing for a prefix-closed
                component; nothing changed.
        """

    def evict(self, component: str, slots: int, namespace: Namespace | None = None) -> Freed:
        """Frees up to `slots` slots of a component, of one namespace if told (rules E-1 to E-6, E-8).

        Cost: O(freed + log candidates), however many nodes there are; for the first time in a namespace
        O(candidates).
        """

    def drop(self, lease: Lease, component: str, boundary_tokens: int) -> Freed:
        """Takes a state at one boundary of a lease's path out, where nobody else needs it (rule E-9).

        Raises:
            ConfigError: a component without states, or not a page boundary of the lease's path.
            StaleHandleError: the lease was released.
        """

    def held_pages(self, component: str, namespace: Namespace) -> int:
        """Pages that a component holds of one namespace; 0 for one that the tree does not know (rule L-5)."""

    def clear(self) -> Freed:
        """Frees everything that no lease protects (rule E-7)."""

    def set_time(self, now_s: float) -> tuple[str, ...]:
        """Tells the time and closes idle sessions; returns their names, idle longest first (rule S-2)."""

    def open_session(self, name: str, *, priority: int = 0, expected_return_s: float | None = None) -> int:
        """Opens a session, or renews one that is open; returns its handle (rule S-1).

        Raises:
            ConfigError: a priority outside of 0 to 1048575, or seconds below 0 or not finite.
        """

    def register(self, handle: int, lease: Lease, *, answer_tokens: int | None = None) -> bool:
        """Moves a session's frontier to a lease's boundary; False when it was closed (rules S-3, S-4).

        Cost: O(nodes that either boundary needs and the other does not); for orders of eviction that ask for
        more than recency, all of them.

        Args:
            answer_tokens: length of the request's answer, for orders of eviction that age; None where nobody
                knows.

        Raises:
            StaleHandleError: the lease was released.
            ConfigError: an answer of less than 0 tokens, or of more than 2³²−1.
        """

    def fork_session(self, source_name: str, target_name: str) -> int:
        """Opens a session with another one's hints and frontier; returns its handle (rule S-6).

        Raises:
            ConfigError: the source is not open.
        """

    def close_session(self, name: str) -> bool:
        """Closes a session; whether it was open (rule S-1)."""

    def take_events(self) -> list[Event]:
        """Events since the last call, oldest first (rule V-1)."""

    def stats(self) -> TreeStats:
        """Sizes, kept by counters (rule L-5)."""

    def dump(self) -> str:
        """The tree as text (rule D-1)."""

    def check(self) -> None:
        """Checks every invariant by walking the whole tree; raises `IntegrityError`."""

@final
class HeldMap(Mapping[str, _P_co]):
    """The pages of a lease, or of an insertion, by the component's name.

    Each array is made when it is first asked for.
    """

    def __getitem__(self, name: str, /) -> _P_co: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __contains__(self, name: object, /) -> bool: ...
    @overload
    def get(self, name: str, default: None = None, /) -> _P_co | None: ...
    @overload
    def get(self, name: str, default: _D, /) -> _P_co | _D: ...
    def keys(self) -> KeysView[str]: ...
    def values(self) -> ValuesView[_P_co]: ...
    def items(self) -> ItemsView[str, _P_co]: ...
