"""Device to host: what requests keep is copied down (rules H-2, H-5)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from graftline.cache.arrival import Arrival
from graftline.cache.link import Copying, Link, pairs_of
from graftline.cache.residency import residency
from graftline.cache.sessions import OpenSession
from graftline.errors import CapacityError
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Tier
from graftline.tiers import Ticket

USES_REMEMBERED = 65_536


@dataclass(frozen=True, slots=True)
class Kept:
    """A boundary that a request keeps on the device.

    Attributes:
        tokens: whole pages up to the boundary, u32; never written to.
        request: number of the request; its boundaries are copied one after another.
        session: who will come back to it; None for nobody in particular.
        answer_tokens: length of the answer when the request has ended there; None while it goes on.
    """

    namespace: Namespace
    tokens: Tokens
    request: int
    session: OpenSession | None = None
    answer_tokens: int | None = None

    def is_place_of(self, other: Kept) -> bool:
        """Whether the other one is the same boundary of the same request."""
        return self.request == other.request and len(self.tokens) == len(other.tokens)


@dataclass(frozen=True, slots=True)
class Backup:
    """One copy on its way; without a ticket when nothing had to be copied."""

    kept: Kept
    arrival: Arrival
    source: Lease
    ticket: Ticket | None
    copying: Copying


Landed = Callable[[Kept, Lease], None]
"""Told of each boundary that the host holds now, with the host's lease on it."""


class Backups:
    """Copies to the host: those that wait and those on their way. Owned by the cache's thread.

    Args:
        link: the two tiers.
        landed: told when a boundary has arrived.
        waiting_max: most boundaries that wait; beyond that the oldest is dropped and counted.
        at_once: most copies on their way.
    """

    def __init__(self, link: Link, *, landed: Landed, waiting_max: int, at_once: int) -> None:
        self._link = link
        self._landed = landed
        self._waiting_max, self._at_once = waiting_max, at_once
        self._waiting: deque[Kept] = deque()
        self._running: list[Backup] = []

    @property
    def waiting(self) -> int:
        """Boundaries that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Copies on their way."""
        return len(self._running)

    def add(self, kept: Kept) -> None:
        """Queues a boundary; the oldest one makes room when too many wait."""
        if len(self._waiting) >= self._waiting_max:
            self._waiting.popleft()
            self._drop("queue full")
        self._waiting.append(kept)

    def complete(self, kept: Kept) -> bool:
        """A request has ended at a boundary that it kept before; False when that is on its way no more."""
        for number, waiting in enumerate(self._waiting):
            if waiting.is_place_of(kept):
                self._waiting[number] = kept
                return True
        for number, backup in enumerate(self._running):
            if backup.kept.is_place_of(kept):
                self._running[number] = replace(backup, kept=kept)
                return True
        return False

    def pump(self, *, start: bool = True) -> None:
        """Ends the copies that are done and starts others, as far as the copy thread takes them."""
        running, self._running = self._running, []
        for backup in running:
            if backup.ticket is not None and not backup.ticket.done:
                self._running.append(backup)
            else:
                self._end(backup)
        if start:
            self._start_waiting()

    def flush(self, count: int | None = None) -> None:
        """Copies what waits, oldest first, and waits until it is done: at most `count` boundaries."""
        self._await_running()
        left = len(self._waiting) if count is None else min(count, len(self._waiting))
        for _ in range(left):
            if not self._begin(self._waiting.popleft()):  # others use the copy thread, or it was closed
                return
            self._await_running()

    def close(self) -> None:
        """Gives back everything; the copy thread was closed before."""
        self._waiting.clear()
        self.pump(start=False)

    # -- steps -----------------------------------------------------------------------------------------

    def _await_running(self) -> None:
        for backup in self._running:
            if backup.ticket is not None:
                backup.ticket.wait()
        self.pump(start=False)

    def _start_waiting(self) -> None:
        later: list[Kept] = []
        while self._waiting and len(self._running) < self._at_once:
            kept = self._waiting.popleft()
            if any(backup.kept.request == kept.request for backup in self._running):
                later.append(kept)  # it need not copy again what the boundary before brings
            elif not self._begin(kept):
                break
        self._waiting.extendleft(reversed(later))

    def _begin(self, kept: Kept) -> bool:
        """Starts one copy; False, and it waits again, when the copy thread takes no more now."""
        device = self._link.device
        found = residency(device, kept.namespace, kept.tokens)
        if found.match.boundary_tokens != len(kept.tokens):
            self._drop("gone before it was copied")
            return True
        source = device.core.claim(found.match, len(kept.tokens))
        try:
            arrival = Arrival(self._link.host, kept.namespace, kept.tokens)
        except CapacityError:
            device.core.release(source)
            self._drop("no room")
            return True
        job, copying = self._link.down(pairs_of(arrival, found))
        ticket = self._link.thread.submit(job) if arrival.places else None
        if arrival.places and ticket is None:
            arrival.abort()
            device.core.release(source)
            self._waiting.appendleft(kept)
            return False
        backup = Backup(kept, arrival, source, ticket, copying)
        if ticket is None:  # nothing will end that could wake the owner
            self._end(backup)
        else:
            self._running.append(backup)
        return True

    def _end(self, backup: Backup) -> None:
        if backup.ticket is not None and backup.ticket.error is not None:
            backup.arrival.abort()
            self._drop("copy failed")
        else:
            self._link.count(backup.arrival, Tier.DEVICE, backup.copying)
            lease = backup.arrival.commit()
            self._landed(backup.kept, lease)
            self._link.host.core.release(lease)
        self._link.device.core.release(backup.source)

    def _drop(self, reason: str) -> None:
        self._link.flow.drop(Tier.DEVICE, Tier.HOST, reason)


class UseCounts:
    """How often boundaries were kept or reused, for copies after the k-th use; bounded, oldest forgotten."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._uses: OrderedDict[bytes, int] = OrderedDict()

    def due(self, key: bytes) -> bool:
        """Counts a use; whether it is the one after which the boundary is copied."""
        uses = self._uses.pop(key, 0) + 1
        self._uses[key] = uses
        if len(self._uses) > USES_REMEMBERED:
            self._uses.popitem(last=False)
        return uses == self._wanted
