"""What knowledge of the future is worth: the share of the gap between LRU and the optimum that it closes.

    python -m bench.replay.bench_knowledge --traces FOLDER [--only NAME] [--quick N] [--docs docs/replay]

Composition `full`, one request at a time, through the real cache, at the sizes where the optimum is more than
five points above `lru`. Orders of eviction are told a part of the future, so none of them can be run: they
say which part of the gap needs which knowledge. Figures are kept as in bench_replay; `--again told` computes
those of the told orders anew.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from bench.harness import Report, command, console, show
from bench.replay.bench_replay import CAPACITIES, shared_options, traces_there
from bench.replay.cells import Cell, Cells, TraceCells
from bench.replay.future import future_of
from bench.replay.kinds import KINDS
from bench.replay.pages import GAP_LEAST, slug, table
from bench.replay.told import replay_told

from graftline.replay import Setup, parse_composition

COMPOSITION = "full"
GITTINS = "gittins"
COLUMNS = (GITTINS, *KINDS)
SEED = 0
SLOW = ("mooncake_conversation/trace", "weka_claude_code/trace_k32", "miniswe_swebench/trace_k32")
DEFAULT_MAX = 3000
INTRODUCTION = """\
Written by `make bench-knowledge`: composition `full`, one request at a time through the real cache, at the
sizes (percents of what an endless cache would hold) where the optimum is more than five points above `lru`.
Orders of eviction are told a part of the future. But for `close` nobody can run them; they show where the gap
lies. A trace's end is an end of all that is in it. Told is, of each value, when a request has passed it:
"""
CAUTION = """\
`gittins` is told nothing; the gap is that of `lru` to the optimum. All but those that go on as `gittins` take
what they are told for certain. Where it is made up, blurred or guessed, more could be made of it, so their
shares are reached with this knowledge, and not the most that can be.
"""
SUMMARY = ("told", "median gap closed", "mean", "least", "half closed")


@dataclass(frozen=True, slots=True)
class Point:
    """A trace at one size.

    Attributes:
        gap: what the optimum is above `lru`, as a share of the prompt tokens.
        is_exact: whether the optimum is one, and not a bound.
        closed: share of the gap that each order closes.
    """

    trace: str
    capacity: float
    gap: float
    is_exact: bool
    closed: dict[str, float]


class KnowledgeCells(TraceCells):
    """Cells about what is told of one trace."""

    def told(self, capacity: float, name: str) -> Cell:
        """One kind of knowledge at one size."""
        cell = f"{self.name}-{COMPOSITION}-{capacity}-told-{name}"
        return self.cells.get(cell, "told", lambda: self._told(capacity, name))

    def _told(self, capacity: float, name: str) -> Cell:
        trace, ahead = self.read()
        composition, kind = parse_composition(COMPOSITION), KINDS[name]
        setup = Setup(composition, self._slots(composition, capacity), trace.page_tokens)
        future = future_of(trace, ahead, setup.slots[COMPOSITION])
        told = kind.tell(future, np.random.default_rng(SEED))
        reused = replay_told(trace, setup, future, kind.order(), told, closes=kind.closes)
        return {"reused_tokens": reused}


def main() -> None:
    options = read_options()
    out = console()
    report = Report("knowledge", seed=SEED, settings={"requests": options.quick, "kinds": list(KINDS)})
    folder = options.out / "replay" / (f"quick-{options.quick}" if options.quick else "all")
    cells = Cells(folder, tuple(options.again or ()))
    points: list[Point] = []
    absent, limited = [], []
    for name, path, limit in traces_there(options, absent, SLOW, DEFAULT_MAX):
        found = list(points_of(KnowledgeCells(path, limit, cells, options.core), name))
        limited += [f"{slug(name)} ({limit:,})"] if limit and found else []
        points += found
        out.print(f"{name}: done, {len(found)} sizes, {cells.computed} computed")
    report.results |= {"absent": absent, "points": [asdict(point) for point in points]}
    show("Share of the gap closed, %", ("trace", "size", "gap", *COLUMNS), [figures(p) for p in points], out)
    out.print(report.machine.line())
    out.print(f"wrote {report.save(options.out)}")
    if options.docs and points:
        options.docs.mkdir(parents=True, exist_ok=True)
        parts = [page(points), f"Command: `{command()}`. Machine: {report.machine.line()}."]
        parts += [f"\nOnly the first requests of: {', '.join(limited)}."] if limited else []
        parts += [f"\nNot there, left out: {', '.join(absent)}."] if absent else []
        (options.docs / "knowledge.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


def points_of(cells: KnowledgeCells, name: str) -> Iterator[Point]:
    """The sizes of a trace where there is a gap."""
    total = cells.base(COMPOSITION)["prompt_tokens"]
    for capacity in CAPACITIES:
        best = cells.optimum(COMPOSITION, capacity)
        lru = cells.run(COMPOSITION, capacity, "lru")["reused_tokens"]
        gap = best["reused_tokens"] - lru
        if gap / total <= GAP_LEAST:
            continue
        reused = {GITTINS: cells.run(COMPOSITION, capacity, GITTINS)["reused_tokens"]}
        reused |= {kind: cells.told(capacity, kind)["reused_tokens"] for kind in KINDS}
        closed = {kind: (tokens - lru) / gap for kind, tokens in reused.items()}
        yield Point(name, capacity, gap / total, best["kind"] == "exact", closed)


def figures(point: Point) -> tuple[object, ...]:
    """A line on the console."""
    shares = (f"{100 * point.closed[name]:.0f}" for name in COLUMNS)
    return slug(point.trace), f"{point.capacity:.0%}", f"{100 * point.gap:.1f}", *shares


def page(points: Sequence[Point]) -> str:
    """Everything in Markdown."""
    texts = [f"- **{name}**: {kind.text}." for name, kind in KINDS.items()]
    return "\n".join(
        [
            *("# What knowledge of the future is worth\n", INTRODUCTION, *texts, ""),
            CAUTION,
            *("## Over all sizes\n", summary(points), ""),
            *("## Share of the gap closed\n", matrix(points), ""),
        ]
    )


def summary(points: Sequence[Point]) -> str:
    """A line an order."""
    lines = []
    for name in COLUMNS:
        shares = [point.closed[name] for point in points]
        half = sum(share >= 0.5 for share in shares)
        parts = (statistics.median(shares), statistics.fmean(shares), min(shares))
        label = f"*nothing* (`{name}`)" if name == GITTINS else name
        lines.append((label, *(f"{part:.0%}" for part in parts), f"{half} of {len(shares)}"))
    return table(SUMMARY, lines)


def matrix(points: Sequence[Point]) -> str:
    """A line a trace and size."""
    lines = [
        (
            f"{slug(point.trace)} {point.capacity:.0%}",
            f"{'' if point.is_exact else '<= '}{100 * point.gap:.1f}",
            *(f"{point.closed[name]:.0%}" for name in COLUMNS),
        )
        for point in points
    ]
    return table(("", "gap, points", *COLUMNS), lines)


def read_options() -> argparse.Namespace:
    return shared_options(__doc__ or "").parse_args()


if __name__ == "__main__":
    main()
