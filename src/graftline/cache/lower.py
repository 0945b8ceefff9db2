"""The tiers below the device, as one cache uses them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from graftline.cache.backup import Backups, Kept, UseCounts
from graftline.cache.flow import Flow
from graftline.cache.gauge import Gauge
from graftline.cache.level import Level
from graftline.cache.link import Link
from graftline.cache.load import Load, begin_load
from graftline.cache.prefetch import Prefetch
from graftline.cache.residency import residency
from graftline.cache.shelf import Shelf, StoreConfig
from graftline.components import ComponentSpec
from graftline.errors import ConfigError
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Tier
from graftline.tiers import CopyThread, HostPool, RowPool, Rows
from graftline.tiers.worth import BreakEven
from graftline.tree import TreeCore

WritePolicy = Literal["write_through", "write_back", "none"]


def nobody() -> None:
    """Wakes nobody."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The host tier.

    Attributes:
        slots: component name to places in its host pool.
        write_policy: `write_through` copies what requests keep as they go on; `write_back` when the device
            runs short of places; `none` never.
        write_uses: `write_through` copies a boundary after this many uses; keeping it is the first.
        waiting_max: most boundaries that wait to be copied.
        at_once: most copies on their way.
        worth: when loading pays.
        rows: component name to the memory of its pool, shape (slots, slot_bytes), uint8, for example pinned;
            what is left out is taken from the system.
        store: the tier that outlives the process, below the host.
        wake: called on another thread when a copy has ended and `pump` has something to do; must not block.
    """

    slots: Mapping[str, int]
    write_policy: WritePolicy = "write_through"
    write_uses: int = 1
    waiting_max: int = 256
    at_once: int = 4
    worth: BreakEven = field(default_factory=BreakEven)
    rows: Mapping[str, Rows] = field(default_factory=dict)
    store: StoreConfig | None = None
    wake: Callable[[], None] = nobody

    def __post_init__(self) -> None:
        if self.write_policy not in get_args(WritePolicy):
            raise ConfigError(
                f"unknown write_policy '{self.write_policy}'",
                hint=f"choose one of {', '.join(get_args(WritePolicy))}",
            )
        for name in ("write_uses", "waiting_max", "at_once"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be at least 1")


def host_slots(
    components: Sequence[ComponentSpec], *, host_bytes: int | None = None, ratio: float = 2.0
) -> dict[str, int]:
    """Places for each host pool, in the proportions of the device's pools.

    Args:
        components: with their `slot_bytes`.
        host_bytes: memory of all host pools together; else `ratio` times the device's.

    Raises:
        ConfigError: not even one place for a component, or slots of unknown size.
    """
    if host_bytes is not None:
        device_bytes = sum(spec.slots * spec.slot_bytes for spec in components)
        if not device_bytes:
            raise ConfigError("the bytes of a slot are unknown", hint="give the host's slots by component")
        ratio = host_bytes / device_bytes
    slots = {spec.name: int(spec.slots * ratio) for spec in components}
    for spec in components:
        if slots[spec.name] < 1:
            raise ConfigError(
                f"the host tier has no room for one slot of '{spec.name}' ({spec.slot_bytes} bytes)",
                hint="give more host memory",
            )
    return slots


class LowerTiers:
    """Host memory and what is below it. Owned by the cache's thread, but for the copy threads.

    Attributes:
        link: device and host.
        worth: when loading pays.
        flow: what moved, and what did not.
    """

    def __init__(
        self,
        device: Level,
        config: HostConfig,
        make_core: Callable[[Sequence[ComponentSpec], Tier], TreeCore],
    ) -> None:
        rows = row_pools(device)
        specs = [replace(spec, slots=places(spec, config)) for spec in device.components]
        pools = {spec.name: host_pool(spec, rows[spec.name], config) for spec in specs}
        host = Level(Tier.HOST, make_core(specs, Tier.HOST), {s.name: s.slots for s in specs}, pools)
        self.config = config
        self.worth = config.worth
        self.flow = Flow()
        self._copies = CopyThread("graftline-copies", on_done=config.wake)
        self.link = Link(device, host, rows, pools, self._copies, self.flow)
        self._backups = Backups(
            self.link, landed=self._landed, waiting_max=config.waiting_max, at_once=config.at_once
        )
        self._uses = UseCounts(config.write_uses)
        self._given: list[Load | Prefetch] = []
        self.shelf: Shelf | None = None
        if config.store is not None:
            self.attach(config.store)

    @property
    def host(self) -> Level:
        """Books of the host tier."""
        return self.link.host

    @property
    def pending(self) -> int:
        """Boundaries that wait to be copied down, or are being copied."""
        return self._backups.waiting + self._backups.running

    @property
    def unwritten(self) -> int:
        """Boundaries that were kept and are not in the store yet; 0 without one."""
        return 0 if self.shelf is None else self.pending + self.shelf.writing

    @property
    def busy(self) -> bool:
        """Whether a copy is on its way, so that `pump` will have something to do."""
        writing = self.shelf is not None and self.shelf.writing
        return bool(self._backups.running or writing or any(given.moving for given in self._given))

    @property
    def protecting(self) -> bool:
        """Whether a load or a prefetch that was given out has ended and was not released yet."""
        return any(given.protects for given in self._given)

    def kept(self, kept: Kept) -> bool:
        """A request keeps a boundary on the device, or reuses one (rule H-5); whether it is to be copied."""
        if self.config.write_policy == "none":
            return False
        at_once = self.config.write_policy == "write_back" or self.config.write_uses == 1
        if at_once or self._uses.due(boundary_key(kept)):
            self._backups.add(kept)
            return True
        return False

    def completed(self, kept: Kept, *, is_new: bool) -> None:
        """A request has ended at a boundary: its session's next turn will begin there in the host too (S-3).

        Args:
            is_new: whether nobody was told before that it is kept.
        """
        if is_new and self.kept(kept):
            return
        if kept.session is None or self._backups.complete(kept):
            return
        match = residency(self.host, kept.namespace, kept.tokens).match
        if match.boundary_tokens == len(kept.tokens):
            lease = self.host.core.lease(match)
            kept.session.register(self.host, lease, kept.answer_tokens)
            self.host.core.release(lease)

    def make_room(self) -> None:
        """The device is about to evict: under `write_back` the oldest boundaries go down first."""
        if self.config.write_policy == "write_back":
            self._backups.flush(self.config.at_once)

    def load(self, namespace: Namespace, tokens: Tokens, *, by_layer: bool) -> Load | None:
        """Starts to bring up what a prompt can reuse; see `begin_load`."""
        readable = self.config.wake if by_layer else None
        load = begin_load(self.link, namespace, tokens, self.worth, readable)
        if load is not None and not load.done:
            self._given.append(load)
        return load

    def prefetch(self, namespace: Namespace, tokens: Tokens, limit_tokens: int) -> Prefetch | None:
        """Starts to fetch from the store what a prompt could reuse; None without a store or without need.

        Args:
            tokens: the prompt's whole pages.
            limit_tokens: deepest boundary that it may reuse (rule M-3).
        """
        if self.shelf is None:
            return None
        limit = limit_tokens // self.link.host.page_tokens
        prefetch = Prefetch(self.link, self.shelf, namespace, tokens, limit, self.worth, self)
        if prefetch.done:
            return prefetch if prefetch.outcome else None
        self._given.append(prefetch)
        return prefetch

    def attach(self, store: StoreConfig) -> None:
        """Begins to use a store, in place of the one before."""
        self.detach()
        self.shelf = Shelf(self.link, store, self.config.wake)
        self._gauge = Gauge(self.shelf)

    def measure_store(self) -> None:
        """The stores are others now: their speed is measured when they answer."""
        if self.shelf is not None:
            self._gauge = Gauge(self.shelf)
            self.worth = self.worth.with_store(None)

    def detach(self) -> None:
        """Lets go of the store and closes it: reads that wait are given up, running ones are waited for."""
        if self.shelf is None:
            return
        self.shelf.stop()
        self._step_given()
        self.shelf.chain.close()
        self.shelf = None

    def pump(self) -> None:
        """Ends the copies that are done and starts those that wait."""
        self._backups.pump(start=self.config.write_policy == "write_through")
        if self.shelf is not None:
            self.shelf.pump()
            self.worth = self._gauge.step(self.worth)
        self._step_given()  # last: what waits for room looks at what all others have let go

    def will_leave_room(self, asking: Prefetch) -> bool:
        """Whether something but `asking` holds places of the host that it will let go when it has ended."""
        writing = self.shelf is not None and self.shelf.writing
        others = any(given.will_leave_room for given in self._given if given is not asking)
        return bool(self._backups.running or writing or others)

    def await_copies(self) -> bool:
        """Waits for the copies down that are on their way, to the store too; False when there were none."""
        writing = self.shelf is not None and self.shelf.writing
        copying = self.await_backups()
        if self.shelf is not None:
            self.shelf.wait()
        return bool(copying or writing)

    def await_backups(self) -> bool:
        """Waits for the copies down that are on their way; whether there were any."""
        running = self._backups.running
        self._backups.flush(0)
        return running > 0

    def await_opened(self) -> None:
        """Waits for the copies of loads that were opened; what failed of them is copied again."""
        for given in self._given:
            if isinstance(given, Load) and given.opened:
                given.wait()
        self._step_given()

    def copy_down(self) -> None:
        """Copies to the host everything that waits, and waits for it; to the store it goes on by itself."""
        self._backups.flush()

    def flush(self) -> None:
        """Copies down everything that waits, to the store too, and waits for it."""
        self.copy_down()
        if self.shelf is not None:
            self.shelf.wait()

    def close(self) -> None:
        """Ends the copy threads and gives back everything that was on its way."""
        self.detach()
        self._copies.close()
        self._backups.close()
        self._step_given()
        for given in self._given:
            if not given.done:
                given.release()

    def _step_given(self) -> None:
        """Loads and prefetches go on; those that have ended and protect nothing more are forgotten."""
        for given in self._given:
            given.step()
        self._given = [given for given in self._given if given.protects or not given.done]

    def _landed(self, kept: Kept, lease: Lease) -> None:
        """A boundary is in the host now: a session's next turn may begin there, and the store may want it."""
        if kept.session is not None and kept.answer_tokens is not None:
            kept.session.register(self.host, lease, kept.answer_tokens)
        if self.shelf is not None:
            self.shelf.write(kept.namespace, kept.tokens)


def row_pools(device: Level) -> dict[str, RowPool]:
    """The device's pools, which must be able to give rows."""
    rows: dict[str, RowPool] = {}
    for spec in device.components:
        pool = device.pools.get(spec.name)
        if pool is None or not hasattr(pool, "export_rows"):
            raise ConfigError(
                f"component '{spec.name}' needs a pool that can copy rows for the host tier",
                hint="give PrefixCache a pool with export_rows and import_rows for every component",
            )
        rows[spec.name] = pool  # type: ignore[assignment]
    return rows


def places(spec: ComponentSpec, config: HostConfig) -> int:
    """Host places of a component."""
    count = config.slots.get(spec.name, 0)
    if count < 1:
        raise ConfigError(
            f"the host tier has {count} slots for '{spec.name}', it needs at least 1",
            hint="give every component host slots",
        )
    return count


def host_pool(spec: ComponentSpec, device: RowPool, config: HostConfig) -> HostPool:
    """The pool of one component, in the memory given or in memory of its own."""
    rows = config.rows.get(spec.name)
    if rows is None:
        return HostPool.zeros(spec.slots, device)
    if rows.shape != (spec.slots, device.slot_bytes):
        raise ConfigError(
            f"host memory of '{spec.name}' has shape {rows.shape}, not {(spec.slots, device.slot_bytes)}"
        )
    return HostPool(rows, device.layout)


def boundary_key(kept: Kept) -> bytes:
    """Names a boundary for the counting of its uses."""
    return hashlib.sha256(kept.namespace.seed() + kept.tokens.tobytes()).digest()
