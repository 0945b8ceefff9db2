"""A copy to the device layer by layer, so that a step can read the first while the last comes (rule H-10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graftline.cache.link import Copying, Link, Pairs
from graftline.plan import Slots
from graftline.tiers import HostPool, PartPool, Progress, RowPart, copy_part, has_parts


@dataclass(frozen=True, slots=True)
class Move:
    """One tensor's share of a load. States are read before anything is computed, so they come first."""

    is_state: bool
    component: str
    source: HostPool
    read: Slots
    target: PartPool
    write: Slots
    part: RowPart

    @property
    def turn(self) -> tuple[bool, int, str]:
        """When it comes."""
        return not self.is_state, self.part.layer, self.component

    def run(self) -> None:
        """Copies it."""
        copy_part(self.source, self.read, self.target, self.write, self.part)


class LayeredCopy:
    """A copy to the device layer by layer, to be run on a copy thread (rule H-10).

    One may begin to read when the states and the first layer are there.
    """

    def __init__(self, moves: Sequence[Move], wake: Callable[[], None]) -> None:
        self._moves = sorted(moves, key=lambda move: move.turn)
        first = min((move.part.layer for move in moves if not move.is_state), default=0)
        head = sum(move.is_state or move.part.layer == first for move in moves)
        self.progress = Progress([(move.component, move.part.tensor) for move in self._moves], head)
        self.copying = Copying()
        self._wake = wake

    def __call__(self) -> None:
        """Runs the copy."""
        try:
            self._run()
        except BaseException as error:
            self.progress.end(error)
            raise
        self.progress.end()

    def _run(self) -> None:
        started = time.perf_counter()
        for pool in {id(move.target): move.target for move in self._moves}.values():
            pool.settle()
        for move in self._moves:
            could_read = self.progress.readable
            move.run()
            self.progress.advance()
            if self.progress.readable and not could_read:
                self._wake()
        self.copying.seconds = time.perf_counter() - started


def layered_copy(link: Link, pairs: Pairs, wake: Callable[[], None]) -> LayeredCopy | None:
    """A copy of pages to the device; None where its pools cannot be filled tensor by tensor.

    Args:
        wake: called on the copy thread when one may begin to read; must not block.
    """
    moves: list[Move] = []
    states = {spec.name for spec in link.device.components if spec.rule.holds_state}
    for name, read, write in pairs:
        pool, source = link.device_rows[name], link.host_rows[name]
        if not has_parts(pool):
            return None
        moves += [Move(name in states, name, source, read, pool, write, part) for part in pool.parts]
    return LayeredCopy(moves, wake) if moves else None
