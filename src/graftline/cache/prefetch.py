"""Store to host: what a queued prompt could reuse is fetched before it is computed (rules B-1 and on).

looking up    on a reading thread: which objects exist; the deepest boundary over device, host and store
waiting       the host has no room now, but something that is on its way will leave some
fetching      places in the host are taken, objects are read, checked and copied into them
again         an object was missing or wrong: what came is kept, the next best boundary is tried
done          the host holds it, protected until `release`
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

import numpy as np

from graftline.cache.arrival import Arrival
from graftline.cache.level import release_all
from graftline.cache.link import Link
from graftline.cache.residency import Bitmap, Residency, joined, joint_boundary, residency
from graftline.cache.shelf import Shelf
from graftline.cache.shortfall import NOT_IN_TIME, TOO_MANY_KEYS, Reach, worst_fault
from graftline.errors import CapacityError
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Slots, Tier
from graftline.tiers import Rows, Ticket, copy_rows
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.lookup import Bounds, Lookup, ObjectRead
from graftline.tiers.store.objects import Path
from graftline.tiers.store.reader import ObjectGot, read_objects
from graftline.tiers.worth import BreakEven
from graftline.tree import TreeCore

ROUNDS_MAX = 4
"""Times that another boundary is tried when objects turn out to be missing."""
ROOM_PATIENCE_S = 10.0
"""How long a prefetch waits for room in the host at most."""


class Phase(Enum):
    """Where a prefetch is."""

    LOOKING_UP = "looking up"
    WAITING = "waiting for room"
    FETCHING = "fetching"
    DONE = "done"


class Movers(Protocol):
    """What else is on its way between the tiers, and protects places of the host meanwhile."""

    def will_leave_room(self, asking: Prefetch) -> bool:
        """Whether some of it, but for who asks, will let places of the host go when it has ended."""

    def await_copies(self) -> bool:
        """Waits for the copies that are on their way; False when there were none."""


class Prefetch:
    """One prompt's fetch from the store. Owned by the cache's thread; it goes on in the cache's `pump`.

    Attributes:
        fetched_tokens: how much deeper the tiers in memory reach than without it.
        outcome: empty while all goes well, else the first reason why not (more) was fetched.
        seconds: from the start to the end.
    """

    def __init__(
        self,
        link: Link,
        shelf: Shelf,
        namespace: Namespace,
        tokens: Tokens,
        limit: int,
        worth: BreakEven,
        movers: Movers,
    ) -> None:
        self._link, self._shelf, self._worth, self._movers = link, shelf, worth, movers
        self._namespace, self._tokens, self._limit = namespace, tokens, limit
        self._started = time.perf_counter()
        elsewhere = self._look()
        self._floor = self._reach(elsewhere)
        self._lookup: Lookup | None = None
        self._arrival: Arrival | None = None
        self._fetch: Fetch | None = None
        self._leases: list[tuple[TreeCore, Lease]] = []
        self._sources: list[tuple[TreeCore, Lease]] = []
        self._rounds = 0
        self._given_up = self._late = False
        self._found: int | None = None
        self._faults: set[str] = set()
        self.phase = Phase.LOOKING_UP
        self.fetched_tokens = 0
        self.outcome = ""
        self.seconds = 0.0
        self._ticket: Ticket | None = None
        if self._floor >= limit:
            self._end("")
        else:
            self._ticket = shelf.reads.submit(self._search(elsewhere))
            if self._ticket is None:
                self._drop("queue full")

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.phase is Phase.DONE

    @property
    def protects(self) -> bool:
        """Whether it still holds leases."""
        return bool(self._leases)

    @property
    def moving(self) -> bool:
        """Whether it is still on its way."""
        return not self.done

    @property
    def will_leave_room(self) -> bool:
        """Whether it holds places of the host, which it will let go whatever others do."""
        return self.phase is Phase.FETCHING or (self.done and self.protects)

    def wait(self) -> None:
        """Goes on until nothing more will come. Waits for no room but what copies leave."""
        while not self.done:
            assert self._ticket is not None
            if self.phase is Phase.WAITING and not self._movers.await_copies():
                self._drop("no room")
            self._ticket.wait()
            self.step()

    def step(self) -> None:
        """Goes on when a job has ended."""
        if self.done or self._ticket is None or not self._ticket.done:
            return
        if self.phase is Phase.WAITING:
            self._begin_fetch()
        elif self._ticket.error is not None:
            self._drop(getattr(self._ticket.error, "told", "failed"))
        elif self.phase is Phase.LOOKING_UP:
            self._begin_fetch()
        else:
            self._end_fetch()

    @property
    def reach(self) -> Reach | None:
        """How deep the store reaches, for the request's report; None when no deeper than without it."""
        reason = NOT_IN_TIME if self._late or not self.done else self.outcome
        if self._found is not None:  # the search has ended
            unsure = worst_fault(self._faults)
            if self._found > self._floor and (reason or not unsure):
                return Reach(Tier.STORE, self._found * self._link.host.page_tokens, reason)
            reason = unsure
        return Reach(Tier.STORE, None, reason) if reason else None

    def release(self) -> None:
        """The request has begun, or does not wait any more. What comes later stays in the host."""
        self._late |= not (self.done or self._given_up)
        self._given_up = True
        if self.phase is Phase.WAITING:
            self._finish()
        if self.done:
            release_all(self._leases)

    # -- steps -----------------------------------------------------------------------------------------

    def _look(self) -> list[Bitmap]:
        """Pages that the tiers in memory hold, by component."""
        link = self._link
        pages = len(self._tokens) // link.host.page_tokens
        on_device, in_host = (
            residency(level, self._namespace, self._tokens) for level in (link.device, link.host)
        )
        return joined(link.host.components, pages, on_device, in_host)

    def _reach(self, bitmaps: Sequence[Bitmap]) -> int:
        """Deepest boundary, in pages, over the tiers in memory."""
        host = self._link.host
        return joint_boundary(host.components, host.page_tokens, bitmaps, self._limit)

    def _search(self, elsewhere: Sequence[Bitmap]) -> Callable[[], None]:
        def search() -> None:
            path: Path = self._shelf.path(self._namespace, self._tokens)
            lookup = Lookup(
                self._shelf.components,
                path,
                elsewhere,
                Bounds(self._floor, self._limit, keys_max=self._shelf.keys_max),
            )
            while keys := lookup.ask():
                lookup.answer(self._shelf.exists(keys, self._faults))
            if lookup.gave_up:
                self._faults.add(TOO_MANY_KEYS)
            self._lookup = lookup

        return search

    def _begin_fetch(self) -> None:
        """Takes places in the host for the deepest boundary that seems possible, and starts to read."""
        lookup, page = self._lookup, self._link.host.page_tokens
        assert lookup is not None
        boundary = lookup.boundary_pages()
        self._found = boundary if self._found is None else self._found
        if boundary <= self._floor or self._given_up or self._rounds == ROUNDS_MAX:
            self._finish()
            return
        reads = lookup.reads(boundary)
        gained = (boundary - self._floor) * page
        if not self._worth.store_pays(gained, sum(read.object_bytes for read in reads)):
            self._drop("not worth it")
            return
        on_device = residency(self._link.device, self._namespace, self._tokens)
        reach = min(boundary * page, on_device.match.path_tokens)
        device = self._link.device.core
        self._sources = [(device, device.claim(on_device.match, reach))]
        try:
            self._arrival = Arrival(self._link.host, self._namespace, self._tokens[: boundary * page])
        except CapacityError as full:
            release_all(self._sources)
            self._await_room(full)
            return
        self._rounds += 1
        self._fetch = Fetch(self._link, self._shelf, self._arrival, reads, on_device)
        self.phase = Phase.FETCHING
        self._ticket = self._shelf.reads.submit(self._fetch.run)
        if self._ticket is None:
            self._drop("queue full")

    def _await_room(self, full: CapacityError) -> None:
        """Waits while others hold the room and will let it go; holds nothing meanwhile."""
        fits = full.wanted_slots <= self._link.host.ledgers[full.component].capacity
        patient = time.perf_counter() - self._started < ROOM_PATIENCE_S
        if fits and patient and self._movers.will_leave_room(self):
            self.phase = Phase.WAITING
        else:
            self._drop("no room")

    def _end_fetch(self) -> None:
        """What came becomes the host's; when something did not, the next best boundary is tried."""
        arrival, fetch, lookup = self._arrival, self._fetch, self._lookup
        assert arrival is not None
        assert fetch is not None
        assert lookup is not None
        self._arrival = None
        for read in fetch.failed:
            lookup.forget(read)
        depth, lacking = arrival.boundary, ""
        for name, came in fetch.came.items():
            failed = arrival.missing(name) & ~came
            if failed.any():
                arrival.drop(name, failed)
                if self._closed(name):
                    depth = min(depth, int(np.flatnonzero(failed)[0]))
                lacking = fetch.fault or fetch.lacking
        self.outcome = self.outcome or lacking
        fetch.book()
        lease = arrival.commit(depth if self._any_closed() or not lacking else arrival.start)
        self._leases.append((self._link.host.core, lease))
        release_all(self._sources)
        if fetch.fault:
            self._drop(fetch.fault)
        elif lacking and not self._given_up:
            self.phase = Phase.LOOKING_UP
            self._begin_fetch()
        else:
            self._finish()

    def _closed(self, name: str) -> bool:
        return any(spec.name == name and spec.rule.prefix_closed for spec in self._link.host.components)

    def _any_closed(self) -> bool:
        return any(spec.rule.prefix_closed for spec in self._link.host.components)

    def _finish(self) -> None:
        """Nothing more is tried."""
        if self._found is not None and self._found < self._limit:  # a fault may have hidden more
            for fault in self._faults:
                self._link.flow.drop(Tier.STORE, Tier.HOST, fault)
        if self.outcome:
            self._drop(self.outcome)
        else:
            self._end("")

    def _drop(self, reason: str) -> None:
        self._link.flow.drop(Tier.STORE, Tier.HOST, reason)
        self._end(self.outcome or reason)

    def _end(self, outcome: str) -> None:
        if self._arrival is not None:
            self._arrival.abort()
            self._arrival = None
        release_all(self._sources)
        self.outcome = outcome
        self.phase = Phase.DONE
        self.seconds = time.perf_counter() - self._started
        if self._leases:  # else nothing came
            gained = self._reach(self._look()) - self._floor
            self.fetched_tokens = max(0, gained) * self._link.host.page_tokens
        if self._given_up:
            release_all(self._leases)


class Fetch:
    """The reading of objects into places of the host; runs on a reading thread, touches rows alone.

    Attributes:
        came: component name to the pages whose places are filled; bool, shape (boundary,).
        failed: reads whose object was missing or wrong.
        fault: why the store could not be read to the end; empty when it could.
        lacking: why the last of the failed reads failed.
    """

    def __init__(
        self,
        link: Link,
        shelf: Shelf,
        arrival: Arrival,
        reads: Sequence[ObjectRead],
        on_device: Residency,
    ) -> None:
        self._link, self._shelf = link, shelf
        self._places: dict[str, Slots] = {name: places.copy() for name, places in arrival.places.items()}
        self._device: dict[str, Slots] = {
            name: on_device.slots(name, arrival.boundary) for name in arrival.places
        }
        self._reads = reads
        self.came: dict[str, Bitmap] = {name: np.zeros(arrival.boundary, np.bool_) for name in arrival.places}
        self.failed: list[ObjectRead] = []
        self.fault = ""
        self.lacking = "objects missing"
        self._object_bytes: dict[str, int] = {}
        self._from_device: dict[str, int] = {}
        self._seconds = 0.0

    def run(self) -> None:
        """Copies what the device has, then reads the rest."""
        started = time.perf_counter()
        for name, places in self._places.items():
            here = np.flatnonzero((places >= 0) & (self._device[name] >= 0))
            if len(here):
                rows = self._link.device_rows[name], self._link.host_rows[name]
                copy_rows(rows[0], self._device[name][here], rows[1], places[here])
                self.came[name][here] = True
                self._from_device[name] = len(here)
        try:
            self._read()
        except StoreError as error:
            self.fault = error.told
        self._seconds = time.perf_counter() - started

    def _read(self) -> None:
        self.failed = list(self._reads)
        gots: list[ObjectGot] = []
        faults: set[str] = set()
        chain, components = self._shelf.chain, self._shelf.components
        for one in read_objects(chain, components, self._reads, faults=faults):
            if one.rows is None:
                self._shelf.known.forget([one.read.key])
                self.lacking = worst_fault(faults, "bad objects" if one.bad else "objects missing")
                continue
            self.failed.remove(one.read)
            gots.append(one)
            self._take(one.read, one.rows)
        self._shelf.fill(gots)

    def _take(self, read: ObjectRead, rows: Rows) -> None:
        """Copies the rows of an object into the places that wait for them."""
        name = self._shelf.components[read.component].layout.component
        self._object_bytes[name] = self._object_bytes.get(name, 0) + read.object_bytes
        if name not in self._places:  # it came to the host some other way meanwhile
            return
        first = read.place.first_page
        places = self._places[name][first : first + len(rows)]
        wanted = np.flatnonzero(places >= 0)
        self._link.host_rows[name].import_rows(places[wanted], rows[wanted])
        self.came[name][first + wanted] = True

    def book(self) -> None:
        """Counts what came; on the owner's thread."""
        flow = self._link.flow
        for name, came in self.came.items():
            slot_bytes = self._link.host_rows[name].slot_bytes
            from_device = self._from_device.get(name, 0)
            flow.moved(name, Tier.DEVICE, Tier.HOST, from_device, slot_bytes)
            flow.pages[name, Tier.STORE, Tier.HOST] += int(came.sum()) - from_device
        for name, object_bytes in self._object_bytes.items():
            flow.bytes[name, Tier.STORE, Tier.HOST] += object_bytes
        flow.took(Tier.STORE, Tier.HOST, self._seconds)
