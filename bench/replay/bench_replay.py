"""Hit rate of every policy over the size of the cache, beside the clairvoyant optimum, on real traces.

    python -m bench.replay.bench_replay --traces FOLDER [--only NAME] [--quick N] [--docs docs/replay]

FOLDER holds a folder a trace, with `trace*.jsonl.gz` inside; what is not there is left out, and named.
One request at a time: figures depend on the trace and the cache alone, not on the machine. Each figure is
kept in `out/replay` as soon as it is known, so a run can be stopped and goes on later; `--again POLICY`
computes a policy's figures anew, `--again all` everything, `--kept` nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.harness import ROOT, Report, command, console, show
from bench.replay.cells import Cells, NotKeptError, Row, TraceCells, rows_of
from bench.replay.pages import Told, write_pages

from graftline.errors import ConfigError
from graftline.policies import POLICIES as BUILT_IN
from graftline.replay.compositions import parse_composition
from graftline.replay.simulate import Setup

TRACES = (
    *("oasst_trees/trace_k16", "lmcache_agents/trace_k8", "moatless_swebench/trace_k16"),
    *("mtrag_un/trace_k32", "ragpulse/trace", "mooncake_synthetic/trace", "tau_bench/trace_k32"),
    *("mooncake_conversation/trace", "qmsum_shared_doc/trace_k24", "miniswe_swebench/trace_k32"),
    "weka_claude_code/trace_k32",
)
"""The quickest first."""
COMPOSITIONS = ("full", "full+swa:1024", "full+state", "full+swa:1024+state")
CAPACITIES = (0.01, 0.05, 0.10, 0.25, 0.50)
POLICIES = (*(name for name in BUILT_IN if name != "priority"), "session(lfu)")
"""Traces name no priorities, so that order is `lru` here."""
COLUMNS = ("trace", "composition", "policy", "size", "hit %", "optimum %", "share %", "gap closed %", "s")


def main() -> None:
    options = read_options()
    out = console()
    policies, unknown = known(options.policies or POLICIES)
    if unknown:
        out.print(f"no such order of eviction, left out: {', '.join(unknown)}")
    report = Report("replay", seed=0, settings={"requests": options.quick, "policies": list(policies)})
    folder = options.out / "replay" / (f"quick-{options.quick}" if options.quick else "all")
    cells = Cells(folder, tuple(options.again or ()), options.kept)
    rows: list[Row] = []
    absent, lacking = [], []
    for name, path, limit in traces_there(options, absent):
        of_trace = TraceCells(path, limit, cells, options.core)
        for text in options.compositions or COMPOSITIONS:
            try:
                rows += list(rows_of(of_trace, name, text, tuple(options.capacities or CAPACITIES), policies))
            except NotKeptError:
                lacking.append(f"{name} `{text}`")
            out.print(f"{name}, {text}: done, {cells.computed} computed")
    if absent:
        out.print(f"not there, left out: {', '.join(absent)}")
    if lacking:
        out.print(f"not computed so far, left out: {', '.join(lacking)}")
    report.results |= {"absent": absent, "lacking": lacking, "rows": [asdict(row) for row in rows]}
    show("Hit rates", COLUMNS, [cells_of(row) for row in rows], out)
    out.print(report.machine.line())
    out.print(f"{cells.computed} figures computed, {cells.older} kept from earlier code")
    out.print(f"wrote {report.save(options.out)}")
    if options.docs and rows:
        told = Told(command(), report.machine.line(), absent, lacking, cells.older, options.quick)
        for path in write_pages(rows, told, options.docs):
            out.print(f"wrote {path}")


def known(policies: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Policies that there are, and those that there are not; `lru` is always among the first."""
    found, unknown = ["lru"], []
    for policy in policies:
        try:
            Setup(parse_composition("full"), {"full": 1}, 1, policy)
        except ConfigError:
            unknown.append(policy)
        else:
            found.append(policy)
    return tuple(dict.fromkeys(found)), unknown


def cells_of(row: Row) -> tuple[object, ...]:
    mark = "<= " if row.best_kind == "bound" else ""
    return (
        row.trace,
        row.composition,
        row.policy,
        f"{row.capacity:.0%}",
        100 * row.hit_rate,
        f"{mark}{100 * row.best_rate:.1f}",
        f"{'>= ' if mark else ''}{100 * row.share:.1f}",
        "-" if row.closed is None else 100 * row.closed,
        row.wall_s,
    )


def shared_options(description: str) -> argparse.ArgumentParser:
    """Options of the benchmarks that keep a figure a cell."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument(
        "--only", action="append", help="a trace, as FOLDER/FILE without ending; may be repeated"
    )
    parser.add_argument("--quick", type=int, default=0, help="stop each trace after so many requests")
    parser.add_argument("--again", action="append", help="compute a policy's figures anew; or 'all'")
    parser.add_argument("--core", default="auto")
    parser.add_argument("--out", type=Path, default=ROOT / "out")
    parser.add_argument("--docs", type=Path, help="write pages and plots into this folder")
    return parser


def traces_there(
    options: argparse.Namespace, absent: list[str], slow: Sequence[str] = (), slow_max: int = 0
) -> Iterator[tuple[str, Path, int]]:
    """Name, file and most requests of each trace that was asked for; those that are not there go to `absent`.

    Args:
        options: those of `shared_options`.
        slow: traces that are stopped after `slow_max` requests, where the options do not say otherwise.
    """
    for name in options.only or TRACES:
        path = options.traces / f"{name}.jsonl.gz"
        if path.exists():
            yield name, path, options.quick or (slow_max if name in slow else 0)
        else:
            absent.append(name)


def read_options() -> argparse.Namespace:
    parser = shared_options(__doc__ or "")
    parser.add_argument("--compositions", action="append", help="a composition; may be repeated")
    parser.add_argument("--policies", action="append", help="an order of eviction; may be repeated")
    parser.add_argument(
        "--capacities", action="append", type=float, help="a share, e.g. 0.05; may be repeated"
    )
    parser.add_argument("--kept", action="store_true", help="compute nothing: only what is known already")
    return parser.parse_args()


if __name__ == "__main__":
    main()
