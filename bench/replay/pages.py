"""Markdown and plots of the benchmark, for `docs/replay`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.replay.cells import STATE_BYTES, TOKEN_BYTES, Row

GAP_LEAST = 0.05
"""The goal speaks of gaps over five points."""
LISTED_MAX = 10
TIE = 0.0005
"""Rates closer than this count as equal."""


INTRODUCTION = f"""\
Written by `make bench-replay`: one request at a time through the real cache, without a model. A hit rate is
the share of prompt tokens that need not be computed. Capacities are percent of what an endless cache would
hold in each pool. The optimum knows the future: it is exact for `full`, and a bound that is proven to be one
for more components (`<=`). "Gap closed" is the share of the way from `lru` to the optimum. Bytes are told
with {TOKEN_BYTES >> 10} KiB a token of each component and {STATE_BYTES >> 20} MiB a state.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What the pages tell besides the rows."""

    command: str
    machine: str
    absent: Sequence[str]
    lacking: Sequence[str]
    older_cells: int
    quick: int


def slug(trace: str) -> str:
    """A trace's name in file names."""
    return trace.split("/", maxsplit=1)[0]


def write_pages(rows: Sequence[Row], told: Told, folder: Path) -> list[Path]:
    """Writes the overview, a page a trace, and a plot a trace; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    traces = list(dict.fromkeys(row.trace for row in rows))
    written = []
    for trace in traces:
        own = [row for row in rows if row.trace == trace]
        written += [draw(own, folder / f"{slug(trace)}.svg")]
        path = folder / f"{slug(trace)}.md"
        path.write_text(trace_page(trace, own), encoding="utf-8")
        written.append(path)
    path = folder / "README.md"
    path.write_text(overview(rows, traces, told), encoding="utf-8")
    return [*written, path]


def overview(rows: Sequence[Row], traces: Sequence[str], told: Told) -> str:
    """The first page."""
    parts = [
        "# Replays of public traces\n",
        INTRODUCTION,
    ]
    if told.quick:
        parts.append(f"**Only the first {told.quick:,} requests of each trace.**\n")
    parts += ["## Policies over everything\n", summary(rows), "", verdict(rows), ""]
    for trace in traces:
        own = [row for row in rows if row.trace == trace and row.composition == "full"]
        parts += [f"## {slug(trace)}, `full`\n", matrix(own), ""]
        parts.append(f"[All compositions]({slug(trace)}.md)\n")
        parts.append(f"![Hit rate over capacity]({slug(trace)}.svg)\n")
    parts.append(f"Command: `{told.command}`. Machine: {told.machine}.")
    if told.absent:
        parts.append(f"\nNot there, left out: {', '.join(told.absent)}.")
    if told.lacking:
        parts.append(f"\nNot computed so far, left out: {', '.join(told.lacking)}.")
    if told.older_cells:
        parts.append(f"\n{told.older_cells} figures come from an earlier state of the code.")
    return "\n".join(parts) + "\n"


def trace_page(trace: str, rows: Sequence[Row]) -> str:
    """All figures of a trace."""
    parts = [f"# {slug(trace)}\n", f"![Hit rate over capacity]({slug(trace)}.svg)\n"]
    for composition in dict.fromkeys(row.composition for row in rows):
        own = [row for row in rows if row.composition == composition]
        parts += [f"## `{composition}`\n", f"An endless cache reaches {own[0].endless_rate:.1%}.\n"]
        parts += [table(LONG, [long_cells(row) for row in own]), ""]
    parts.append("[Overview](README.md)")
    return "\n".join(parts) + "\n"


LONG = ("capacity", "memory", "policy", "hit rate", "optimum", "of the optimum", "gap closed", "TTFT p50 s")


def long_cells(row: Row) -> tuple[str, ...]:
    """One run."""
    bound = row.best_kind == "bound"
    return (
        f"{row.capacity:.0%}",
        human(row.pool_bytes),
        f"`{row.policy}`",
        f"{row.hit_rate:.1%}",
        f"{'<= ' if bound else ''}{row.best_rate:.1%}",
        f"{'>= ' if bound else ''}{row.share:.1%}",
        "-" if row.closed is None else f"{'>= ' if bound and row.closed > 0 else ''}{row.closed:.0%}",
        f"{row.first_token_p50_s:.3f}",
    )


def matrix(rows: Sequence[Row]) -> str:
    """Policies by capacities; the best of each capacity in bold."""
    capacities = list(dict.fromkeys(row.capacity for row in rows))
    best = {c: max(row.hit_rate for row in rows if row.capacity == c) for c in capacities}
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows):
        cells = []
        for row in (row for row in rows if row.policy == policy):
            text = f"{row.hit_rate:.1%}"
            cells.append(f"**{text}**" if row.hit_rate >= best[row.capacity] - TIE else text)
        lines.append((f"`{policy}`", *cells))
    optima = {row.capacity: row for row in rows}
    line = [f"{'<= ' if r.best_kind == 'bound' else ''}{r.best_rate:.1%}" for r in optima.values()]
    lines.append(("*optimum*", *line))
    return table(("", *(f"{capacity:.0%}" for capacity in capacities)), lines)


SUMMARY = (
    *("policy", "mean hit rate", "mean share of the optimum", "best or equal", "most below the best, points"),
    *("gaps over 5 points", "of them half closed", "median gap closed"),
)


def summary(rows: Sequence[Row]) -> str:
    """One line a policy."""
    best: dict[tuple[str, str, float], float] = {}
    for row in rows:
        key = (row.trace, row.composition, row.capacity)
        best[key] = max(best.get(key, 0.0), row.hit_rate)
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows):
        own = [row for row in rows if row.policy == policy]
        behind = [best[row.trace, row.composition, row.capacity] - row.hit_rate for row in own]
        wide = [row.closed for row in own if row.gap > GAP_LEAST and row.closed is not None]
        lines.append(
            (
                f"`{policy}`",
                f"{statistics.fmean(row.hit_rate for row in own):.1%}",
                f"{statistics.fmean(row.share for row in own):.1%}",
                f"{sum(short <= TIE for short in behind)} of {len(own)}",
                f"{100 * max(behind):.1f}",
                str(len(wide)),
                str(sum(closed >= 0.5 for closed in wide)),
                f"{statistics.median(wide):.0%}" if wide else "-",
            )
        )
    return table(SUMMARY, lines)


def verdict(rows: Sequence[Row]) -> str:
    """Where the policy with the best mean is not the best, and where it closes less than half of a gap."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    means = {p: statistics.fmean(row.hit_rate for row in rows if row.policy == p) for p in policies}
    leader = max(policies, key=lambda policy: means[policy])
    others: dict[tuple[str, str, float], Row] = {}
    for row in rows:
        key = (row.trace, row.composition, row.capacity)
        if key not in others or row.hit_rate > others[key].hit_rate:
            others[key] = row
    losing: list[tuple[float, str]] = []
    short: list[tuple[float, str]] = []
    for row in (row for row in rows if row.policy == leader):
        first = others[row.trace, row.composition, row.capacity]
        where = f"{slug(row.trace)} `{row.composition}` {row.capacity:.0%}"
        behind = first.hit_rate - row.hit_rate
        if behind > TIE:
            losing.append((behind, f"{where} ({100 * behind:.1f} behind `{first.policy}`)"))
        if row.gap > GAP_LEAST and row.closed is not None and row.closed < 0.5:
            short.append((row.gap, f"{where} ({row.closed:.0%} of {100 * row.gap:.1f} points)"))
    return "\n\n".join(
        [
            f"Highest mean: `{leader}`.",
            worst_of(losing, "Behind another policy"),
            worst_of(short, "Less than half of a gap over five points closed"),
        ]
    )


def worst_of(found: list[tuple[float, str]], what: str) -> str:
    """How often, and the widest of them."""
    if not found:
        return f"{what}: nowhere."
    widest = [text for _, text in sorted(found, reverse=True)[:LISTED_MAX]]
    return f"{what} at {len(found)}; the widest: {'; '.join(widest)}."


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first column is a name, the others are figures."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def human(count: int) -> str:
    """Bytes in a few signs."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def draw(rows: Sequence[Row], path: Path) -> Path:
    """A panel a composition: hit rate over capacity, a line a policy, the optimum above them."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    compositions = list(dict.fromkeys(row.composition for row in rows))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "graftline", "font.size": 8}):
        figure = Figure(figsize=(9.6, 3.0 * -(-len(compositions) // 2)), layout="constrained")
        FigureCanvasSVG(figure)
        panels = figure.subplots(-(-len(compositions) // 2), 2, squeeze=False).flat
        for axes, composition in zip(panels, compositions, strict=False):
            own = [row for row in rows if row.composition == composition]
            for policy in dict.fromkeys(row.policy for row in own):
                line = [row for row in own if row.policy == policy]
                places = [100 * row.capacity for row in line]
                axes.plot(places, [row.hit_rate for row in line], marker="o", markersize=3, label=policy)
            kind = "optimum" if line[0].best_kind == "exact" else "bound on the optimum"
            axes.plot(places, [row.best_rate for row in line], "k^-", markersize=3, label=kind)
            axes.axhline(line[0].endless_rate, color="grey", linestyle=":", label="endless cache")
            axes.set(title=composition, xscale="log", ylim=(0, 1), ylabel="hit rate")
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xlabel("slots of each pool, % of an endless cache's")
            axes.minorticks_off()
            axes.grid(alpha=0.3)
        figure.legend(*panels_legend(figure), loc="outside lower center", ncols=5)
        figure.savefig(path, metadata={"Date": None})
    return path


def panels_legend(figure: object) -> tuple[list[object], list[str]]:
    """Each label once, over all panels."""
    found: dict[str, object] = {}
    for axes in figure.axes:  # type: ignore[attr-defined]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
