"""What every benchmark of the cores shares: component lists, cores by name, timing, tokens."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graftline.components import Checkpoint, ComponentSpec, Full, ReuseRule, Window
from graftline.key import Namespace, Tokens
from graftline.plan import Held
from graftline.tree import PythonCore, TreeCore
from graftline.tree.rust import RustCore

NAMESPACE = Namespace("bench")
CORES: dict[str, Callable[..., TreeCore]] = {"python": PythonCore, "rust": RustCore}
now_ns = time.thread_time_ns  # of this thread: what others do on a busy machine is left out


@dataclass(frozen=True)
class Shape:
    """A model's components, by a short name for the table."""

    name: str
    rules: dict[str, ReuseRule]

    def core(self, core: str, page_tokens: int) -> TreeCore:
        specs = [ComponentSpec(name, rule, slots=1 << 30) for name, rule in self.rules.items()]
        return CORES[core](specs, page_tokens=page_tokens)


SHAPES = (
    Shape("FULL", {"full": Full()}),
    Shape("FULL+SWA(128)", {"full": Full(), "swa": Window(127)}),
    Shape("FULL+SWA(4096)", {"full": Full(), "swa": Window(4095)}),
    Shape("FULL+MAMBA", {"full": Full(), "state": Checkpoint()}),
    Shape("FULL+SWA(128)+MAMBA", {"full": Full(), "swa": Window(127), "state": Checkpoint()}),
)


def first_needed(rule: ReuseRule, start: int, end: int, page_tokens: int) -> int:
    """First of the pages `start` to `end` that a request which reached `end` still has."""
    return max(start, rule.first_page(end, page_tokens))


class SlotSource:
    """Slots that are never used twice, for trees that nothing leaves."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> npt.NDArray[np.int32]:
        self.next += count
        return np.arange(self.next - count, self.next, dtype=np.int32)

    def values(self, shape: Shape, start: int, end: int, page_tokens: int) -> dict[str, Sequence[Held]]:
        """What a request gives that computed the pages `start` to `end`."""
        values: dict[str, Sequence[Held]] = {}
        for name, rule in shape.rules.items():
            first = first_needed(rule, start, end, page_tokens)
            values[name] = [Held(first, self.take(end - first))]
        return values


def grow(
    core: TreeCore, shape: Shape, slots: SlotSource, tokens: Tokens, start: int = 0, step: int | None = None
) -> None:
    """Inserts a prompt from its reused boundary on, in one piece or in pieces of `step` tokens."""
    lease = core.lease(core.match(NAMESPACE, tokens[:start]))
    assert lease.boundary_tokens == start
    page = core.page_tokens
    for begin in range(start, len(tokens), step or len(tokens)):
        end = min(len(tokens), begin + (step or len(tokens)))
        values = slots.values(shape, begin // page, end // page, page)
        lease = core.insert(lease, tokens[begin:end], values, move_lease=True).lease
    core.release(lease)


def median_us(samples_ns: Sequence[int]) -> float:
    return round(statistics.median(samples_ns) / 1e3, 2)


def quantile_us(samples_ns: Sequence[int], share: float) -> float:
    return round(sorted(samples_ns)[min(len(samples_ns) - 1, int(share * len(samples_ns)))] / 1e3, 2)


def timed_us(operation: Callable[[], object], repeats: int) -> float:
    """Median time of an operation."""
    samples = []
    for _ in range(repeats):
        began = now_ns()
        operation()
        samples.append(now_ns() - began)
    return median_us(samples)
