"""Our two cores, measured by the benchmarks of `bench/core`."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from bench.core.conversation import run
from bench.core.eviction import eviction
from bench.core.load import Load
from bench.core.long_match import long_match
from bench.core.sessions import sessions
from bench.core.shapes import SHAPES, median_us
from bench.rivals import cells
from bench.rivals.cells import Cell

Figures = dict[str, float]


def versions() -> dict[str, str]:
    return {"graftline": version("graftline"), "numpy": np.__version__}


def measure(cell: Cell, core: str) -> Figures:
    """One round of a cell."""
    shape = next(shape for shape in SHAPES if shape.name == cell.shape)
    if cell.part == "conversation":
        samples = run(core, shape, cell.page_tokens, cell.count, cells.STEP_TOKENS, as_engine=False)
        turns = [sum(parts) for parts in zip(*samples.values(), strict=True)]
        return {"turn_us": median_us(turns), "turn_late_us": median_us(turns[-cells.LATE_TURNS :])}
    if cell.part == "match":
        row = long_match(core, shape, cell.page_tokens, cells.MATCH_TOKENS, cell.count, cell.repeats)
        return _numbers(row, "match_us", "memcmp_us")
    if cell.part == "sessions":
        row = sessions(core, shape, cell.page_tokens, Load(sessions=cell.count))
        return _numbers(row, "turns_per_s", "ops_per_s", "turn_p99_us", "freed_per_asked", "hit_rate")
    row = eviction(core, shape, cell.page_tokens, cell.count, cell.repeats)
    return {**_numbers(row, "evict_us"), "freed_per_asked": 1.0}


def _numbers(row: dict[str, object], *names: str) -> Figures:
    return {name: float(str(row[name])) for name in names}
