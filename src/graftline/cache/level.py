"""One tier that keeps values in slots: a tree, an owner's list for each pool, and the pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graftline.cache.slots import SlotLedger
from graftline.components import ComponentSpec
from graftline.errors import CapacityError, IntegrityError
from graftline.key import Namespace
from graftline.plan import Freed, Lease, Slots, Tier
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


class Level:
    """The books of one tier; the only owner of its slots.

    Attributes:
        tier: which one.
        core: which prefix is where in this tier.
        ledgers: component name to who owns each of its slots.
        pools: component name to its values; may lack components whose values nobody copies.
        evicted_slots: component name to how many slots were evicted in all.
    """

    def __init__(
        self, tier: Tier, core: TreeCore, slots: Mapping[str, int], pools: Mapping[str, ValuePool]
    ) -> None:
        self.tier = tier
        self.core = core
        self.components: Sequence[ComponentSpec] = core.specs
        self.page_tokens = core.page_tokens
        self.pools = dict(pools)
        self.ledgers = {name: SlotLedger(name, count) for name, count in slots.items()}
        self.evicted_slots = dict.fromkeys(slots, 0)

    def allocate(self, component: str, count: int) -> Slots:
        """Takes slots as private ones, evicting what must go.

        Raises:
            CapacityError: not enough slots are free or evictable; nothing was taken.
        """
        ledger = self.ledgers[component]
        if ledger.free < count:
            self.settle(self.core.evict(component, count - ledger.free))
        if ledger.free < count:
            raise CapacityError(component, count, ledger.free)
        return ledger.take(count)

    def keep_to_share(self, component: str, count: int, namespace: Namespace, share: float) -> None:
        """A namespace that would keep more than its share gives of its own first (rule C-12)."""
        most = int(share * self.ledgers[component].capacity)
        over = self.core.held_pages(component, namespace) + count - most
        if over > 0:
            self.settle(self.core.evict(component, over, namespace))

    def settle(self, freed: Freed) -> None:
        """Books slots that the tree let go."""
        for name, slots in freed.slots.items():
            self.ledgers[name].evict(slots)
            self.evicted_slots[name] += len(slots)

    def clear(self) -> int:
        """Frees everything that no lease protects; returns how many slots."""
        freed = self.core.clear()
        self.settle(freed)
        return sum(len(slots) for slots in freed.slots.values())

    def uses(self) -> tuple[PoolUse, ...]:
        """Owners of every pool's slots. Cost: O(components)."""
        leased = {pool.component: pool.leased_pages for pool in self.core.stats().pools}
        return tuple(
            PoolUse(name, ledger.capacity, ledger.free, ledger.held, leased[name], ledger.private)
            for name, ledger in self.ledgers.items()
        )

    def check(self, *, idle: bool) -> None:
        """Checks the tree and that no slot is lost or owned twice (rule C-1); walks everything.

        Args:
            idle: whether nobody holds anything, so that no slot may be private or leased (rule C-2).
        """
        self.core.check()
        held = {pool.component: pool.held_pages for pool in self.core.stats().pools}
        for use in self.uses():
            if use.free + use.held + use.private != use.capacity or use.held != held[use.component]:
                raise IntegrityError("C-1", f"{use}, the tree counts {held[use.component]}")
            if idle and (use.private or use.leased):
                raise IntegrityError("C-2", f"no request is open, but {use}")


def release_all(leases: list[tuple[TreeCore, Lease]]) -> None:
    """Releases leases, the newest first; the list is empty afterwards."""
    while leases:
        core, lease = leases.pop()
        core.release(lease)
