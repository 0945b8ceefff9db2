"""The figures of all sides in one table, on the screen and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.rivals.cells import CORES
from bench.rivals.sides import Result


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a part: its title, whether more is better, and how many decimals are shown."""

    part: str
    key: str
    title: str
    more_is_better: bool = False
    decimals: int = 1


MEASURES = (
    Measure("conversation", "turn_us", "turn, all, µs"),
    Measure("conversation", "turn_late_us", "turn, last 25, µs"),
    Measure("match", "match_us", "match of 131,072, µs"),
    Measure("sessions", "ops_per_s", "operations a second", more_is_better=True, decimals=0),
    Measure("sessions", "freed_per_asked", "freed for each asked", decimals=3),
    Measure("sessions", "hit_rate", "hit rate", more_is_better=True, decimals=3),
    Measure("eviction", "evict_us", "one eviction of a page, µs"),
    Measure("eviction", "freed_per_asked", "freed for each asked", decimals=3),
)
UNITS = {"conversation": "turns", "match": "nodes", "sessions": "sessions", "eviction": "leaves"}
COLUMNS = (
    "measure",
    "composition",
    "page",
    "of",
    *(f"{core}: {side}" for core in ("Python", "Rust") for side in ("ours", "SGLang", "ratio")),
    "",
)


def rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One a measure and cell. A ratio tells how many times better ours is; below 1 it is worse."""
    for measure in MEASURES:
        for result in results:
            if result.cell.part == measure.part:
                yield _row(measure, result)


def _row(measure: Measure, result: Result) -> list[str]:
    cell = result.cell
    row = [
        measure.title,
        cell.shape,
        str(cell.page_tokens),
        f"{cell.count:,} {UNITS[cell.part]}".replace("1 nodes", "1 node"),
    ]
    worse = False
    for core in CORES:
        ours, theirs = (_figure(result, f"{side} {core}", measure.key) for side in ("ours", "sglang"))
        ratio = _ratio(ours, theirs, measure.more_is_better)
        worse |= ratio is not None and ratio < 0.995
        row += [_text(ours, measure), _text(theirs, measure), "" if ratio is None else f"{ratio:.2f}"]
    absent = "; ".join(f"{name}: {why}" for name, why in result.absent.items())
    return [*row, absent or ("worse" if worse else "")]


def _figure(result: Result, name: str, key: str) -> float | None:
    return result.figures.get(name, {}).get(key)


def _ratio(ours: float | None, theirs: float | None, more_is_better: bool) -> float | None:
    if not ours or not theirs:
        return None
    return ours / theirs if more_is_better else theirs / ours


def _text(value: float | None, measure: Measure) -> str:
    return "-" if value is None else f"{value:,.{measure.decimals}f}"


def markdown(results: Sequence[Result]) -> str:
    """The table in Markdown."""
    lines = [COLUMNS, ["---"] * 3 + ["---:"] * (len(COLUMNS) - 4) + ["---"], *rows(results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
