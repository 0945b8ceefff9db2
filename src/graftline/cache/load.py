"""Host to device: what a prompt can reuse of the host's is brought up before it is computed (rule H-6)."""

from __future__ import annotations

from graftline.cache.arrival import Arrival
from graftline.cache.level import release_all
from graftline.cache.link import Copying, Link, pairs_of
from graftline.cache.residency import Residency, joined, joint_boundary, needed, residency
from graftline.cache.shortfall import NOT_IN_TIME, Reach
from graftline.errors import CapacityError
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Tier
from graftline.tiers import Ticket
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
        failed: why nothing came; empty when all went well so far.
    """

    def __init__(self, link: Link, boundary_tokens: int, gained_tokens: int) -> None:
        self._link = link
        self._arrival: Arrival | None = None
        self._leases: list[tuple[TreeCore, Lease]] = []
        self._ticket: Ticket | None = None
        self._copying = Copying()
        self.boundary_tokens = boundary_tokens
        self.gained_tokens = gained_tokens
        self.done = False
        self.failed = ""

    @property
    def seconds(self) -> float:
        """How long the copy took; 0 before it has ended."""
        return self._copying.seconds if self.done else 0.0

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

    def start(self, namespace: Namespace, tokens: Tokens, in_host: Residency) -> None:
        """Takes places on the device and queues the copy; gives up when there is no room for either.

        Args:
            tokens: whole pages up to the boundary.
            in_host: what the host holds of them.
        """
        self._leases.append((self._link.host.core, protect(self._link, in_host, self.boundary_tokens)))
        try:
            self._arrival = arrival = Arrival(self._link.device, namespace, tokens)
        except CapacityError:
            self.give_up("no room")
            return
        job, self._copying = self._link.up(pairs_of(arrival, in_host))
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

    def wait(self) -> None:
        """Waits for the copy and ends the load."""
        if self._ticket is not None:
            self._ticket.wait()
        self.step()

    def step(self) -> None:
        """Ends the load when the copy is done: what came is the device's, protected until `release`."""
        if self.done or self._ticket is None or not self._ticket.done:
            return
        if self._ticket.error is not None:
            self.give_up("copy failed")
            return
        self.done = True
        arrival, self._arrival = self._arrival, None
        assert arrival is not None
        self._link.count(arrival, Tier.HOST, self._copying)
        self._leases.append((self._link.device.core, arrival.commit()))

    def release(self) -> None:
        """Lets go of everything; waits for a copy that is on its way, as its places cannot be given away."""
        if not self.done:
            self.wait()
        release_all(self._leases)


def begin_load(link: Link, namespace: Namespace, tokens: Tokens, worth: BreakEven) -> Load | None:
    """Starts to bring up what `tokens` can reuse; None when that is nothing.

    A load that is given up at once is done, and `failed` says why.

    Args:
        tokens: whole pages that may be reused: at most all of the prompt but its last token (rule M-3).
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
        load.start(namespace, tokens[: boundary * page], in_host)
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
