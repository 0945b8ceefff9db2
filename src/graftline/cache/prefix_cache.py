"""PrefixCache: prefix reuse for one model's pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graftline.cache.cores import make_core
from graftline.cache.request import CachedRequest
from graftline.cache.slots import SlotLedger
from graftline.components import ComponentSpec
from graftline.errors import CapacityError, ConfigError, IntegrityError
from graftline.key import Namespace, TokensLike, as_tokens
from graftline.plan import Event, Freed, Slots
from graftline.policies import EvictionPolicy
from graftline.tiers import ValuePool
from graftline.tree import TreeCore


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Slots of one pool: `free + held + private == capacity` (rule C-1); `held` includes `leased`."""

    component: str
    capacity: int
    free: int
    held: int
    leased: int
    private: int


class PrefixCache:
    """Finds, protects, keeps and evicts cached prefixes; the only owner of slots.

    Not thread-safe: one thread owns it.

    Args:
        components: the model's components; the order is that of every report.
        page_tokens: tokens a page.
        pools: component name to its values, for copying checkpoints; a component that holds states
            needs one, others need none.
        core: which tree core keeps the books: `auto`, `python` or `rust`.
        policy: order of eviction; least recently used by default.
        record_events: whether `take_events` has something to give.

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
        policy: EvictionPolicy | None = None,
        record_events: bool = False,
    ) -> None:
        self.pools = dict(pools or {})
        for spec in components:
            if spec.rule.holds_state and spec.name not in self.pools:
                raise ConfigError(f"component '{spec.name}' holds states and needs a pool to copy them in")
        self.core: TreeCore = make_core(
            core, components, page_tokens=page_tokens, policy=policy, record_events=record_events
        )
        self.components = tuple(components)
        self.page_tokens = page_tokens
        self.ledgers = {spec.name: SlotLedger(spec.name, spec.slots) for spec in components}
        self.evicted_slots = {spec.name: 0 for spec in components}
        self.skipped_checkpoints = 0
        self.open_requests = 0

    def begin(
        self,
        tokens: TokensLike,
        *,
        namespace: Namespace | None = None,
        use_cache: bool = True,
        marks: Sequence[int] = (),
    ) -> CachedRequest:
        """Starts a request: finds and protects the longest reusable prefix of its prompt.

        The result is a context manager; leaving it without `finish` aborts the request (rule C-2).

        Args:
            tokens: the prompt, at least one token; one token at least is left to compute (rule M-3).
            namespace: what the prefix must share; the empty namespace by default.
            use_cache: False reuses nothing and keeps nothing.
            marks: places in the prompt, in tokens, where others are expected to leave it, for example
                the end of a system prompt; the last page boundary before each is kept (rule C-5).

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
        return CachedRequest(self, key, namespace or Namespace(), use_cache, marks)

    def allocate(self, component: str, count: int) -> Slots:
        """Takes slots for a request, evicting what must go.

        Raises:
            CapacityError: not enough slots are free or evictable; nothing was taken.
        """
        ledger = self.ledgers[component]
        if ledger.free < count:
            self.settle(self.core.evict(component, count - ledger.free))
        if ledger.free < count:
            raise CapacityError(component, count, ledger.free)
        return ledger.take(count)

    def settle(self, freed: Freed) -> None:
        """Books slots that the tree let go."""
        for name, slots in freed.slots.items():
            self.ledgers[name].evict(slots)
            self.evicted_slots[name] += len(slots)

    def clear(self) -> int:
        """Frees everything that no request needs; returns how many slots."""
        freed = self.core.clear()
        self.settle(freed)
        return sum(len(slots) for slots in freed.slots.values())

    def take_events(self) -> list[Event]:
        """Events since the last call, oldest first."""
        return self.core.take_events()

    def uses(self) -> tuple[PoolUse, ...]:
        """Owners of every pool's slots. Cost: O(components)."""
        leased = {pool.component: pool.leased_pages for pool in self.core.stats().pools}
        return tuple(
            PoolUse(name, ledger.capacity, ledger.free, ledger.held, leased[name], ledger.private)
            for name, ledger in self.ledgers.items()
        )

    def check(self) -> None:
        """Checks the tree and that no slot is lost or owned twice (rule C-1); walks everything."""
        self.core.check()
        held = {pool.component: pool.held_pages for pool in self.core.stats().pools}
        for use in self.uses():
            if use.free + use.held + use.private != use.capacity or use.held != held[use.component]:
                raise IntegrityError("C-1", f"{use}, the tree counts {held[use.component]}")
            if self.open_requests == 0 and (use.private or use.leased):
                raise IntegrityError("C-2", f"no request is open, but {use}")
