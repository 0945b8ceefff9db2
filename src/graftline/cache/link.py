"""Device and host, and the thread that copies rows between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graftline.cache.arrival import Arrival
from graftline.cache.flow import Flow
from graftline.cache.level import Level
from graftline.cache.residency import Residency
from graftline.plan import Slots, Tier
from graftline.tiers import CopyThread, Gate, HostPool, RowPool, copy_rows

Pairs = Sequence[tuple[str, Slots, Slots]]
"""Component, slots to read, slots to write."""


@dataclass(slots=True)
class Copying:
    """Seconds that a copy took; written on the copy thread, read when it has ended."""

    seconds: float = 0.0


@dataclass(slots=True)
class Link:
    """The two tiers that keep values in slots.

    Attributes:
        device, host: books.
        device_rows, host_rows: pools, by component.
        thread: where rows are copied, one job after another.
        flow: counters.
        gate: where readers of the device's pools wait for what is on its way there (rule H-10).
    """

    device: Level
    host: Level
    device_rows: Mapping[str, RowPool]
    host_rows: Mapping[str, HostPool]
    thread: CopyThread
    flow: Flow = field(default_factory=Flow)
    gate: Gate = field(default_factory=Gate)

    def down(self, pairs: Pairs) -> tuple[Callable[[], None], Copying]:
        """A copy from the device to the host, to be run on a copy thread."""
        return self._job(pairs, self.device_rows, self.host_rows)

    def up(self, pairs: Pairs) -> tuple[Callable[[], None], Copying]:
        """A copy from the host to the device, to be run on a copy thread."""
        return self._job(pairs, self.host_rows, self.device_rows)

    @staticmethod
    def _job(
        pairs: Pairs, sources: Mapping[str, RowPool], targets: Mapping[str, RowPool]
    ) -> tuple[Callable[[], None], Copying]:
        copying = Copying()

        def copy() -> None:
            started = time.perf_counter()
            for name, read, write in pairs:
                copy_rows(sources[name], read, targets[name], write)
            copying.seconds = time.perf_counter() - started

        return copy, copying

    def count(self, arrival: Arrival, source: Tier, copying: Copying) -> None:
        """Books what an arrival brought; before it is committed."""
        self.book(pages_of(arrival), source, arrival.level.tier, copying)

    def book(self, pages: Mapping[str, int], source: Tier, target: Tier, copying: Copying) -> None:
        """Books a move of so many pages a component."""
        for name, count in pages.items():
            self.flow.moved(name, source, target, count, self.host_rows[name].slot_bytes)
        self.flow.took(source, target, copying.seconds)


def pages_of(arrival: Arrival) -> dict[str, int]:
    """How many pages of each component an arrival brings; before it is committed."""
    return {name: int(np.count_nonzero(arrival.missing(name))) for name in arrival.places}


def pairs_of(arrival: Arrival, source: Residency) -> list[tuple[str, Slots, Slots]]:
    """Slots to read in the source and to write in the arrival, for each page that is to come."""
    pairs = []
    for name, places in arrival.places.items():
        pages = np.flatnonzero(arrival.missing(name))
        if len(pages):
            pairs.append((name, source.slots(name, arrival.boundary)[pages], places[pages]))
    return pairs
