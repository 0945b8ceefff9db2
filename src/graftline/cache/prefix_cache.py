"""PrefixCache: prefix reuse for one model's pools."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from copy import deepcopy

from graftline.cache.cores import make_core
from graftline.cache.history import Moment
from graftline.cache.inference import Inference
from graftline.cache.level import Level, PoolUse
from graftline.cache.load import Load
from graftline.cache.lower import HostConfig, LowerTiers
from graftline.cache.news import News
from graftline.cache.placement import EVERYWHERE, Placement
from graftline.cache.prefetch import Prefetch
from graftline.cache.request import CachedRequest
from graftline.cache.sessions import OpenSession, Session, SessionLimits
from graftline.cache.shelf import StoreConfig
from graftline.cache.shortfall import Reach
from graftline.cache.slots import SlotLedger
from graftline.cache.thinning import Lines
from graftline.cache.watch import Watch
from graftline.components import ComponentSpec
from graftline.errors import CapacityError, ConfigError
from graftline.key import Namespace, TokensLike, as_tokens
from graftline.plan import Event, Freed, Slots, Tier
from graftline.policies import EvictionPolicy
from graftline.tiers import ValuePool
from graftline.tree import TreeCore

DEFAULT_LIMITS = SessionLimits()


class PrefixCache:
    """Finds, protects, keeps and evicts cached prefixes; the only owner of slots.

    Not thread-safe: one thread owns it.

    Attributes:
        placement: which boundaries get windows and checkpoints (rule C-5); set it before the first request.
        namespace_share: most of each device pool that values of one namespace may keep (rule C-12); what
            running requests hold is never cut.
        cut_tokens: prompts are cut at multiples of so many tokens by whoever computes them; 0 for elsewhere
            (rule C-14). Set it before the first request.
        watch: remembers what became of pages; None unless `start_watch` was called.
        inference: finds sessions for requests that name none (rule S-9); None where that is off.
        lines: which states sessions keep for themselves (rule C-13).

    Args:
        components: the model's components; the order is that of every report.
        page_tokens: tokens a page.
        pools: component name to its values, for copying checkpoints; a component that holds states
            needs one, others need none. With a host tier every component needs a `RowPool`.
        core: which tree core keeps the books: `auto`, `python` or `rust`.
        policy: order of eviction, or the text of one (`make_policy`); least recently used by default.
        record_events: whether `take_events` has something to give.
        host: the tier of host memory, and the store below it; none by default.
        sessions: when sessions end by themselves.

    Raises:
        ConfigError: an unknown core, or a component with states but without a pool.
    """

    def __init__(
        self,
        components: Sequence[ComponentSpec],
        *,
        page_tokens: int,
        pools: Mapping[str, ValuePool] | None = None,
        core: str = "auto",
        policy: EvictionPolicy | str | None = None,
        record_events: bool = False,
        host: HostConfig | None = None,
        sessions: SessionLimits = DEFAULT_LIMITS,
    ) -> None:
        pools = dict(pools or {})
        for spec in components:
            if spec.rule.holds_state and spec.name not in pools:
                raise ConfigError(f"component '{spec.name}' holds states and needs a pool to copy them in")

        def new_core(specs: Sequence[ComponentSpec], tier: Tier) -> TreeCore:
            return make_core(
                core,
                specs,
                page_tokens=page_tokens,
                policy=policy if tier is Tier.DEVICE else deepcopy(policy),
                record_events=record_events,
                tier=tier,
                session_ttl_s=sessions.ttl_s,
                max_sessions=sessions.most,
            )

        slots = {spec.name: spec.slots for spec in components}
        self.device = Level(Tier.DEVICE, new_core(components, Tier.DEVICE), slots, pools)
        self.lower = None if host is None else LowerTiers(self.device, host, new_core)
        self._levels = [self.device] if self.lower is None else [self.device, self.lower.host]
        self.components = tuple(components)
        self.page_tokens = page_tokens
        self.watch: Watch | None = None
        self.placement: Placement = EVERYWHERE
        self.namespace_share = 1.0
        self.cut_tokens = 0
        self.inference: Inference | None = None
        if sessions.infer:
            self.inference = Inference(self._levels, page_tokens, sessions)
        self.lines = Lines(self.device, sessions.most)
        self.skipped_checkpoints = 0
        self.open_requests = 0
        self._requests = itertools.count(1)
        self._records = record_events
        self._now_s = 0.0

    # -- the device's books ----------------------------------------------------------------------------

    @property
    def core(self) -> TreeCore:
        """The tree of the device tier."""
        return self.device.core

    @property
    def ledgers(self) -> dict[str, SlotLedger]:
        """Owners of the device's slots."""
        return self.device.ledgers

    @property
    def pools(self) -> dict[str, ValuePool]:
        """Values on the device."""
        return self.device.pools

    @property
    def evicted_slots(self) -> dict[str, int]:
        """Slots evicted from the device, by component."""
        return self.device.evicted_slots

    def begin(
        self,
        tokens: TokensLike,
        *,
        namespace: Namespace | None = None,
        use_cache: bool = True,
        marks: Sequence[int] = (),
        session: Session | OpenSession | None = None,
        label: str = "",
        below: Sequence[Reach | None] = (),
    ) -> CachedRequest:
        """Starts a request: finds and protects the longest reusable prefix of its prompt.

        The result is a context manager; leaving it without `finish` aborts the request (rule C-2).

        Args:
            tokens: the prompt, at least one token; one token at least is left to compute (rule M-3).
            namespace: what the prefix must share; the empty namespace by default.
            use_cache: False reuses nothing and keeps nothing.
            marks: places in the prompt, in tokens, where others are expected to leave it, for example
                the end of a system prompt; the last page boundary before each is kept (rule C-5).
            session: who will come back; what the request leaves is registered to it when it finishes. One of
                `open_session` that was closed meanwhile stays closed (rule S-4).
                Where nobody is told, the cache finds out by itself whose turn it is (rule S-9).
            label: names the request in explanations; its number by default.
            below: `reach` of its load and prefetch, to be told what was not brought up (rule H-9).

        Raises:
            ConfigError: an empty prompt, bad token ids, or a mark outside the prompt.
            CapacityError: no slot for the request's live state, though everything was evicted.
        """
        key = as_tokens(tokens)
        if len(key) == 0:
            raise ConfigError("a prompt needs at least one token")
        for mark in marks:
            if not 0 <= mark <= len(key):
                raise ConfigError(f"mark {mark} is outside the prompt of {len(key)} tokens")
        opened = self.open_session(session) if isinstance(session, Session) else session
        number = next(self._requests)
        moment = Moment(label or str(number), number, opened.name if opened else "", self._now_s)
        namespace = namespace or Namespace()
        news = News(self, moment, namespace, opened, below)
        return CachedRequest(self, key, namespace, use_cache, marks, news)

    def start_watch(self, watch: Watch) -> None:
        """Remembers what becomes of pages from now on, so that requests can be explained (rule C-11).

        Raises:
            ConfigError: the cache records no events.
        """
        if not self._records:
            raise ConfigError("a watch needs events", hint="make the cache with record_events=True")
        self.watch = watch

    def tell_watch(self, moment: Moment) -> None:
        """What happened since the last time happened for this request."""
        if self.watch is not None:
            self.watch.feed(self._events(), moment)

    # -- sessions --------------------------------------------------------------------------------------

    def set_time(self, now_s: float) -> tuple[str, ...]:
        """Tells the time, which never goes back; closes idle sessions and returns their names (rule S-2)."""
        self._now_s = max(self._now_s, now_s)
        closed = [level.core.set_time(now_s) for level in self._levels]
        self.lines.forget(closed[0])
        if self.inference is not None:
            self.inference.set_time(now_s)
        return closed[0]

    def open_session(self, session: Session) -> OpenSession:
        """Opens a session in every tier, or renews it; for requests that begin more than once."""
        return OpenSession(self._levels, session)

    def close_session(self, name: str) -> bool:
        """Ends a session: it weighs nothing any more, in any tier. Whether it was open."""
        closed = [level.core.close_session(name) for level in self._levels]
        self.lines.forget([name])
        return closed[0]

    def fork_session(self, source: str, target: str) -> None:
        """Opens a session that comes back to where another one is (rule S-6).

        Raises:
            ConfigError: the other one is not open.
        """
        for level in self._levels:
            level.core.fork_session(source, target)

    # -- the tiers below -------------------------------------------------------------------------------

    def load(
        self, tokens: TokensLike, *, namespace: Namespace | None = None, by_layer: bool = False
    ) -> Load | None:
        """Starts to bring up what a prompt can reuse of the host tier, before `begin`.

        None when there is nothing to bring up. The load is `done` after some `pump`, or at once when it was
        given up, as `failed` tells; then `begin` the request and `release` the load.

        Args:
            by_layer: so that `Load.open` can give it out early; for pools read through a gate (rule H-10).
        """
        if self.lower is None:
            return None
        key = as_tokens(tokens)
        whole = max(0, len(key) - 1) // self.page_tokens * self.page_tokens
        return self.lower.load(namespace or Namespace(), key[:whole], by_layer=by_layer)

    def prefetch(self, tokens: TokensLike, *, namespace: Namespace | None = None) -> Prefetch | None:
        """Starts to fetch from the store what a prompt could reuse, when it is queued.

        None when there is no store, or the tiers in memory reach as deep as a prompt may reuse. It is `done`
        after some `pump`, or at once when no more can be queued; `release` it when the request has begun
        or does not wait any more.
        """
        if self.lower is None:
            return None
        key = as_tokens(tokens)
        whole = len(key) // self.page_tokens * self.page_tokens
        return self.lower.prefetch(namespace or Namespace(), key[:whole].copy(), max(0, len(key) - 1))

    def attach_store(self, store: StoreConfig) -> None:
        """Begins to use a store at run time, in place of the one before, which is closed.

        Raises:
            ConfigError: there is no host tier.
        """
        if self.lower is None:
            raise ConfigError("a store needs a host tier above it", hint="start with host memory")
        self.lower.attach(store)

    def detach_store(self) -> None:
        """Stops to use the store and closes it."""
        if self.lower is not None:
            self.lower.detach()

    def pump(self) -> None:
        """Ends the copies between tiers that are done, and starts those that wait. Never blocks."""
        if self.lower is not None:
            self.lower.pump()

    def close(self) -> None:
        """Ends the copy threads; what waits to be copied is given up. The device's tier stays usable."""
        if self.lower is not None:
            self.lower.close()

    def allocate(self, component: str, count: int, namespace: Namespace) -> Slots:
        """Takes slots for a request of a namespace, evicting what must go.

        What is being copied down cannot go; when it stands in the way, its copy is waited for.

        Raises:
            CapacityError: not enough slots are free or evictable; nothing was taken.
        """
        if self.namespace_share < 1.0:
            self.device.keep_to_share(component, count, namespace, self.namespace_share)
        if self.lower is not None and self.device.ledgers[component].free < count:
            self.lower.make_room()
        try:
            return self.device.allocate(component, count)
        except CapacityError:
            if self.lower is None or not self.lower.await_backups():
                raise
            return self.device.allocate(component, count)

    def settle(self, freed: Freed) -> None:
        """Books slots that the device's tree let go."""
        self.device.settle(freed)

    def clear(self, tier: Tier = Tier.DEVICE) -> int:
        """Frees everything in a tier that no request needs; returns how many slots."""
        if self.lower is not None:
            self.lower.await_opened()  # their requests may be gone already
        if tier is Tier.DEVICE:
            return self.device.clear()
        if tier is Tier.HOST and self.lower is not None:
            return self.lower.host.clear()
        return 0

    def take_events(self) -> list[Event]:
        """Events since the last call, oldest first, those of the device before those of the host."""
        return self._events() if self.watch is None else self.watch.take_events()

    def _events(self) -> list[Event]:
        events: list[Event] = []
        for level in self._levels:
            events += level.core.take_events()
        return events

    def uses(self) -> tuple[PoolUse, ...]:
        """Owners of every device pool's slots. Cost: O(components)."""
        return self.device.uses()

    def check(self) -> None:
        """Checks the trees and that no slot is lost or owned twice (rule C-1); walks everything."""
        moving = self.lower is not None and (self.lower.busy or self.lower.protecting)
        self.device.check(idle=self.open_requests == 0 and not moving)
        if self.lower is not None:
            self.lower.host.check(idle=not moving)
