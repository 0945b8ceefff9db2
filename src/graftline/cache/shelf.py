"""What a cache keeps in a store: its components as objects, and the writing of them (rule B-1 and on)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from graftline.cache.link import Link
from graftline.cache.residency import Residency, residency
from graftline.key import Namespace, Tokens, page_keys
from graftline.plan import Lease, Slots, Tier
from graftline.tiers import CopyThread, Ticket
from graftline.tiers.store.base import Key
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.groups import Group
from graftline.tiers.store.lookup import StoredComponent
from graftline.tiers.store.objects import ObjectLayout, ObjectPlace, Path, blank, layout_digest, seal
from graftline.tiers.store.reader import ObjectGot, in_batches

KEYS_REMEMBERED = 65_536
PUT_BYTES = 16 * 2**20
"""Most bytes of objects in one `put`."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The store tier.

    Attributes:
        chain: the stores, near first.
        readers: threads that look up and read.
        queue_max: most reads, and most writes, that wait; beyond that they are dropped and counted.
        object_bytes: about how large an object of grouped pages is to be.
        keys_max: most keys that one prompt asks for.
    """

    chain: ChainStore
    readers: int = 2
    queue_max: int = 64
    object_bytes: int = 256 * 1024
    keys_max: int = 1024


class Known:
    """Keys that are in the store as far as this process knows; bounded, oldest forgotten. For any thread."""

    def __init__(self, most: int = KEYS_REMEMBERED) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()
        self._most = most
        self._lock = threading.Lock()

    def unknown(self, keys: Sequence[Key]) -> list[int]:
        """Places of the keys that are not known."""
        with self._lock:
            return [place for place, key in enumerate(keys) if key not in self._keys]

    def add(self, keys: Sequence[Key]) -> None:
        """They are there."""
        with self._lock:
            for key in keys:
                self._keys[key] = None
                self._keys.move_to_end(key)
            while len(self._keys) > self._most:
                self._keys.popitem(last=False)

    def forget(self, keys: Sequence[Key]) -> None:
        """They are not there after all."""
        with self._lock:
            for key in keys:
                self._keys.pop(key, None)

    def clear(self) -> None:
        """Nothing is known."""
        with self._lock:
            self._keys.clear()


@dataclass(slots=True)
class Written:
    """What became of one boundary; filled on the writing thread, read when it has ended.

    Attributes:
        objects: component and bytes of each object written.
        refused: objects that no store took.
    """

    objects: list[tuple[str, int]] = field(default_factory=list)
    refused: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Write:
    """One boundary on its way to the store."""

    source: Lease
    ticket: Ticket
    written: Written


class Wanted(NamedTuple):
    """One object of a boundary."""

    key: Key
    layout: ObjectLayout
    place: ObjectPlace

    @property
    def object_bytes(self) -> int:
        """Its length."""
        return self.layout.object_bytes(len(self.place.tokens) // self.layout.page_tokens)


class Shelf:
    """The store as one cache uses it. Owned by the cache's thread, but for the jobs that it queues.

    Attributes:
        chain: the stores.
        components: how each component lies in the store, in the order of the cache.
        reads: threads that look up and read.
        answered: set when a store has answered; whoever waits for that takes it back.
    """

    def __init__(self, link: Link, config: StoreConfig, wake: Callable[[], None]) -> None:
        self.chain = config.chain
        depth = config.queue_max
        self.reads = CopyThread("graftline-reads", depth=depth, threads=config.readers, on_done=wake)
        self._writes = CopyThread("graftline-writes", depth=depth, on_done=wake)
        self.keys_max = config.keys_max
        self.answered = False
        self.known = Known()
        self._link = link
        self._running: list[Write] = []
        self.components = []
        for spec in link.device.components:
            pool = link.host_rows[spec.name]
            group = Group(1)
            if spec.rule.prefix_closed:
                group = Group.for_slots(pool.slot_bytes, config.object_bytes)
            digest = layout_digest(pool.layout, link.host.page_tokens, group.pages)
            layout = ObjectLayout(spec.name, digest, link.host.page_tokens, pool.slot_bytes)
            self.components.append(StoredComponent(spec.rule, layout, group))

    @property
    def writing(self) -> int:
        """Boundaries on their way to the store."""
        return len(self._running)

    def path(self, namespace: Namespace, tokens: Tokens) -> Path:
        """Names of a path's pages. Cost: SHA-256 over the tokens."""
        page = self._link.host.page_tokens
        seed = namespace.seed()
        return Path(tokens, seed, list(page_keys(seed, tokens, page)), page)

    def write(self, namespace: Namespace, tokens: Tokens) -> None:
        """Queues what one boundary of the host needs; what the store is known to have is left out.

        Args:
            tokens: whole pages up to the boundary; never written to.
        """
        host = self._link.host
        found = residency(host, namespace, tokens)
        if found.match.boundary_tokens != len(tokens):
            return
        source = host.core.claim(found.match, len(tokens))
        written = Written()
        ticket = self._writes.submit(lambda: self._write(written, namespace, tokens, found))
        if ticket is None:
            host.core.release(source)
            self._link.flow.drop(Tier.HOST, Tier.STORE, "queue full")
            return
        self._running.append(Write(source, ticket, written))

    def exists(self, keys: Sequence[Key], faults: set[str]) -> list[bool]:
        """Asks the stores; what they have lost is not known any more, so that it is written again.

        Args:
            keys: of objects.
            faults: gets the reasons of stores that did not answer, while another one did.
        """
        there = self.chain.exists(keys, faults=faults)
        self.answered = True
        self.known.forget([key for key, is_there in zip(keys, there, strict=True) if not is_there])
        return there

    def fill(self, gots: Sequence[ObjectGot]) -> None:
        """Queues what came from a farther store for the nearer ones; from any thread."""
        near = [store.url for store in self.chain.stores[:1]]
        farther = [one for one in gots if one.got.source not in near]
        if farther:
            keys, values = [one.read.key for one in farther], [one.got for one in farther]
            self._writes.submit(lambda: self.chain.fill(keys, values))

    def pump(self) -> None:
        """Ends the writes that are done."""
        running, self._running = self._running, []
        for write in running:
            if not write.ticket.done:
                self._running.append(write)
                continue
            self._link.host.core.release(write.source)
            self._book(write)

    def submit(self, job: Callable[[], None]) -> Ticket | None:
        """Runs something else on the writing thread; None when its queue is full."""
        return self._writes.submit(job)

    def stop(self) -> None:
        """Ends the threads: what waits is given up, what runs is waited for. The store stays open."""
        self.reads.close()
        self._writes.close()
        self.pump()

    def wait(self) -> None:
        """Waits for the writes that are on their way."""
        for write in self._running:
            write.ticket.wait()
        self.pump()

    # -- on the writing thread -----------------------------------------------------------------------------

    def _write(self, written: Written, namespace: Namespace, tokens: Tokens, found: Residency) -> None:
        started = time.perf_counter()
        wanted = self._lacking(self._wanted(self.path(namespace, tokens)))
        pages = len(tokens) // self._link.host.page_tokens
        slots = {name: found.slots(name, pages) for name in {one.layout.component for one in wanted}}
        for batch in in_batches(wanted, PUT_BYTES):
            self._put(written, batch, slots)
        written.seconds = time.perf_counter() - started

    def _wanted(self, path: Path) -> list[Wanted]:
        """All objects that the boundary at the end of a path needs."""
        return [
            Wanted(
                component.layout.key(path.keys[end - 1]),
                component.layout,
                path.place(component.first_page(end), end),
            )
            for component in self.components
            for end in component.ends(0, len(path.keys))
        ]

    def _lacking(self, wanted: list[Wanted]) -> list[Wanted]:
        """Those that are not known to be in every store."""
        unknown = [wanted[place] for place in self.known.unknown([one.key for one in wanted])]
        if not unknown:
            return []
        there = self.chain.everywhere([one.key for one in unknown])
        self.answered = True
        self.known.add([one.key for one, is_there in zip(unknown, there, strict=True) if is_there])
        return [one for one, is_there in zip(unknown, there, strict=True) if not is_there]

    def _put(self, written: Written, batch: list[Wanted], slots: Mapping[str, Slots]) -> None:
        objects = [self._object(one, slots[one.layout.component]) for one in batch]
        done = self.chain.put([one.key for one in batch], objects)
        self.known.add([one.key for one, ok in zip(batch, done, strict=True) if ok])
        sizes = zip(batch, objects, done, strict=True)
        written.objects += [(one.layout.component, len(data)) for one, data, ok in sizes if ok]
        written.refused += done.count(False)

    def _object(self, one: Wanted, slots: Slots) -> memoryview:
        first = one.place.first_page
        data, rows = blank(one.layout, one.place)
        self._link.host_rows[one.layout.component].export_rows(slots[first : first + len(rows)], rows)
        seal(data)
        return data

    def _book(self, write: Write) -> None:
        flow, written, error = self._link.flow, write.written, write.ticket.error
        if error is not None:
            flow.drop(Tier.HOST, Tier.STORE, getattr(error, "reason", "failed"))
        for name, object_bytes in written.objects:
            flow.moved(name, Tier.HOST, Tier.STORE, 1, object_bytes)
        if written.refused:
            flow.dropped[Tier.HOST, Tier.STORE, "refused"] += written.refused
        flow.took(Tier.HOST, Tier.STORE, written.seconds)
