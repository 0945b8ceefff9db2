"""Host to device: what a prompt can reuse of the host's is brought up before it is computed (rule H-6).

started     places are taken, the copy is queued
opened      some loads: it is the device's, and readers wait at the gate for what has not come (rule H-10)
done        it is the device's; the request may begin
"""

from __future__ import annotations

import time
from collections.abc import Callable

from graftline.cache.arrival import Arrival
from graftline.cache.layered import layered_copy
from graftline.cache.level import release_all
from graftline.cache.link import Copying, Link, pages_of, pairs_of
from graftline.cache.residency import Residency, joined, joint_boundary, needed, residency
from graftline.cache.shortfall import NOT_IN_TIME, Reach
from graftline.errors import CapacityError
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Tier
from graftline.tiers import Progress, Ticket
from graftline.tiers.worth import BreakEven
from graftline.tree import TreeCore


class Load:
    """One load on its way. Owned by the cache's thread.

    It ends by itself in the cache's `pump`; `release` must be called once the request has begun, or to
    give the load up.

    Attributes:
        boundary_tokens: what the device will be able to reuse.
        gained_tokens: how much more that is than without the load.
        done: whether the request may begin now.
        opened: whether it became the device's before its copy had ended.
        failed: why nothing came; empty when all went well so far.
    """

    def __init__(self, link: Link, boundary_tokens: int, gained_tokens: int) -> None:
        self._link = link
        self._arrival: Arrival | None = None
        self._leases: list[tuple[TreeCore, Lease]] = []
        self._ticket: Ticket | None = None
        self._copying = Copying()
        self._progress: Progress | None = None
        self._again: Callable[[], None] | None = None
        self._pages: dict[str, int] = {}
        self._released = False
        self._began_s = time.perf_counter()
        self._took_s = 0.0
        self.boundary_tokens = boundary_tokens
        self.gained_tokens = gained_tokens
        self.done = self.opened = False
        self.failed = ""

    @property
    def seconds(self) -> float:
        """How long the copy took, or the wait for it where it was opened before; 0 until then."""
        return self._took_s if self.done else 0.0

    @property
    def moving(self) -> bool:
        """Whether the copy is on its way; an opened load is done before that has ended."""
        return not self.done or self._ticket is not None

    @property
    def protects(self) -> bool:
        """Whether it still holds leases."""
        return bool(self._leases)

    @property
    def will_leave_room(self) -> bool:
        """Whether it holds places of the host, which it will let go."""
        return self.protects

    @property
    def reach(self) -> Reach:
        """How deep the host reaches, for the request's report."""
        return Reach(Tier.HOST, self.boundary_tokens, self.failed if self.done else NOT_IN_TIME)

    def start(
        self,
        namespace: Namespace,
        tokens: Tokens,
        in_host: Residency,
        readable: Callable[[], None] | None = None,
    ) -> None:
        """Takes places on the device and queues the copy; gives up when there is no room for either.

        Args:
            tokens: whole pages up to the boundary.
            in_host: what the host holds of them.
            readable: given where it is to be copied layer by layer: called on the copy thread when it may be
                opened; must not block.
        """
        self._leases.append((self._link.host.core, protect(self._link, in_host, self.boundary_tokens)))
        try:
            self._arrival = arrival = Arrival(self._link.device, namespace, tokens)
        except CapacityError:
            self.give_up("no room")
            return
        pairs = pairs_of(arrival, in_host)
        job, self._copying = self._link.up(pairs)
        layered = layered_copy(self._link, pairs, readable) if readable else None
        if layered is not None:
            self._again, job = job, layered
            self._copying, self._progress = layered.copying, layered.progress
        self._ticket = self._link.thread.submit(job)
        if self._ticket is None:
            self.give_up("queue full")

    def give_up(self, reason: str) -> None:
        """Nothing comes; the reason is counted."""
        self.done, self.failed = True, reason
        self._link.flow.drop(Tier.HOST, Tier.DEVICE, reason)
        arrival, self._arrival = self._arrival, None
        if arrival is not None:
            arrival.abort()
        release_all(self._leases)

    def open(self) -> bool:
        """Makes the device's what has not come yet, where that is allowed and enough of it is there.

        Whoever reads the device's pools must ask the link's gate first, from now until the copy has ended.
        """
        if not self.done and self._progress is not None and self._progress.readable:
            self._link.gate.add(self._progress)
            self.opened = True
            self._commit(time.perf_counter() - self._began_s)
        return self.done

    def wait(self) -> None:
        """Waits for the copy and ends the load."""
        if self._ticket is not None:
            self._ticket.wait()
        self.step()

    def step(self) -> None:
        """Ends the load when the copy is done: what came is the device's, protected until `release`.

        Raises:
            Exception: an opened load's copy failed, and failed again: what the device holds cannot be used.
        """
        if self._ticket is None or not self._ticket.done:
            return
        error, self._ticket = self._ticket.error, None
        if error is not None and not self.opened:
            self.give_up("copy failed")
            return
        if not self.opened:
            self._commit(self._copying.seconds)
        elif error is not None:
            self._repair()
        self._link.book(self._pages, Tier.HOST, Tier.DEVICE, self._copying)
        if self._progress is not None:
            self._link.gate.remove(self._progress)
        if self._released:
            release_all(self._leases)

    def release(self) -> None:
        """Lets go of everything, as soon as no copy is on its way: its places cannot be given away."""
        self._released = True
        if not self.done:
            self.wait()
        if not self.moving:
            release_all(self._leases)

    def _commit(self, seconds: float) -> None:
        self.done, self._took_s = True, seconds
        arrival, self._arrival = self._arrival, None
        assert arrival is not None
        self._pages = pages_of(arrival)
        self._leases.append((self._link.device.core, arrival.commit()))

    def _repair(self) -> None:
        """Copies once more, all at once and here: the device has given out what did not come."""
        assert self._again is not None
        self._link.flow.drop(Tier.HOST, Tier.DEVICE, "copied again")
        self._again()


def begin_load(
    link: Link,
    namespace: Namespace,
    tokens: Tokens,
    worth: BreakEven,
    readable: Callable[[], None] | None = None,
) -> Load | None:
    """Starts to bring up what `tokens` can reuse; None when that is nothing.

    A load that is given up at once is done, and `failed` says why.

    Args:
        tokens: whole pages that may be reused: at most all of the prompt but its last token (rule M-3).
        readable: see `Load.start`.
    """
    page = link.device.page_tokens
    pages = len(tokens) // page
    on_device = residency(link.device, namespace, tokens)
    in_host = residency(link.host, namespace, tokens)
    components = link.device.components
    boundary = joint_boundary(components, page, joined(components, pages, on_device, in_host), pages)
    gained = boundary * page - on_device.match.boundary_tokens
    if gained <= 0:
        return None
    load = Load(link, boundary * page, gained)
    if worth.host_pays(gained, load_bytes(link, on_device, boundary)):
        load.start(namespace, tokens[: boundary * page], in_host, readable)
    else:
        load.give_up("not worth it")
    return load


def load_bytes(link: Link, on_device: Residency, boundary: int) -> int:
    """Bytes that a boundary, in pages, needs and the device lacks."""
    total = 0
    for spec in link.device.components:
        pages = needed(spec, boundary, link.device.page_tokens)
        here = on_device.bitmap(spec.name, boundary)[pages]
        total += (len(here) - int(here.sum())) * link.host_rows[spec.name].slot_bytes
    return total


def protect(link: Link, in_host: Residency, wanted: int) -> Lease:
    """Protects what a boundary, in tokens, needs of the host; counts a use where it accepts that alone."""
    if in_host.match.boundary_tokens == wanted:
        return link.host.core.lease(in_host.match)
    return link.host.core.claim(in_host.match, min(wanted, in_host.match.path_tokens))
