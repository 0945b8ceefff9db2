"""The least that an operation costs from Python: the same calls with nothing to do, and the clock itself.

No figure of an operation can be below these, whatever the core does: they are the way over the border, the
objects of the result, and reading the clock.
"""

from __future__ import annotations

import numpy as np
from bench.core.shapes import NAMESPACE, Shape, median_us, now_ns

REPEATS = 2000
NOTHING = np.zeros(0, dtype=np.uint32)


def border(core_name: str, shape: Shape) -> dict[str, object]:
    """Median µs of each operation of a turn in an empty tree."""
    core = shape.core(core_name, 1)
    spent: dict[str, list[int]] = {name: [] for name in ("clock", "match", "lease", "insert", "release")}
    for _ in range(REPEATS):
        times = [now_ns(), now_ns()]
        found = core.match(NAMESPACE, NOTHING)
        times.append(now_ns())
        lease = core.lease(found)
        times.append(now_ns())
        done = core.insert(lease, NOTHING, {})
        times.append(now_ns())
        core.release(done.lease)
        times.append(now_ns())
        for samples, before, after in zip(spent.values(), times[:-1], times[1:], strict=True):
            samples.append(after - before)
    figures = {f"{name}_us": median_us(samples) for name, samples in spent.items()}
    return {"core": core_name, "shape": shape.name, **figures}
