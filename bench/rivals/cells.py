"""What is measured: one cell is one load on one composition; every system measures the same cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

SHAPES = ("FULL", "FULL+SWA(128)", "FULL+SWA(4096)", "FULL+MAMBA", "FULL+SWA(128)+MAMBA")
PAGES = (1, 64)
PARTS = ("conversation", "match", "sessions", "eviction")
STEP_TOKENS = 512
LATE_TURNS = 25
MATCH_TOKENS = 131_072
LEAF_PAGES = 4
SHARED_PAGES = 8
CORES = ("python", "rust")


@dataclass(frozen=True, slots=True)
class Cell:
    """One load.

    Attributes:
        part: which of `PARTS`.
        count: turns, nodes on the path, sessions, or leaves, by the part.
        repeats: samples taken in one round, where the part repeats one operation.
    """

    part: str
    shape: str
    page_tokens: int
    count: int
    repeats: int = 0

    def wire(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def window_tokens(shape: str) -> int:
    """Size of the shape's window; 0 for none."""
    return int(shape.split("SWA(")[1].split(")", maxsplit=1)[0]) if "SWA" in shape else 0


def cells(part: str, quick: bool) -> Iterator[Cell]:
    """The cells of a part."""
    for shape in SHAPES:
        for page in PAGES:
            if part == "conversation":
                yield Cell(part, shape, page, 50 if quick else 200)
            if part == "match":
                yield from (Cell(part, shape, page, nodes, 20 if quick else 100) for nodes in (1, 256))
            if part == "sessions":
                yield from (Cell(part, shape, page, count) for count in ((400,) if quick else (400, 2000)))
            if part == "eviction" and (shape, page) in EVICTED_ON:
                counts = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
                yield from (Cell(part, shape, page, count, 100) for count in counts)


EVICTED_ON = ((SHAPES[0], 1), (SHAPES[0], 64), (SHAPES[3], 64))
FOR_PYTHON = {"sessions": 400, "eviction": 10_000}
ROUNDS = {"conversation": 5, "match": 3, "sessions": 2, "eviction": 3}


def rounds(cell: Cell, core: str, quick: bool) -> int:
    """How often a cell is measured on a core; a Python core is spared what takes it many minutes."""
    if core == "python":
        return int(cell.count <= FOR_PYTHON.get(cell.part, cell.count))
    return 1 if quick else ROUNDS[cell.part]
