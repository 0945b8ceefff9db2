"""Hit rate of every policy over the size of the cache, beside the clairvoyant optimum, on real traces.

    python -m bench.replay.bench_replay --traces FOLDER [--only NAME] [--requests N] [--out out]

FOLDER holds a folder a trace, with `trace*.jsonl.gz` inside; what is not there is left out, and named.
One request at a time: figures depend on the trace and the cache alone, not on the machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.harness import ROOT, Report, console, show

from graftline.replay import POLICIES, FileTrace, PagedTrace, SweepPlan, parse_composition, sweep
from graftline.replay.report import as_json
from graftline.replay.sweep import SweepPoint, SweepResult

TRACES = (
    *("mooncake_conversation/trace", "mooncake_synthetic/trace", "weka_claude_code/trace_k32"),
    *("ragpulse/trace", "miniswe_swebench/trace_k32", "moatless_swebench/trace_k16", "tau_bench/trace_k32"),
    *("lmcache_agents/trace_k8", "oasst_trees/trace_k16", "qmsum_shared_doc/trace_k24", "mtrag_un/trace_k32"),
)
COMPOSITIONS = ("full", "full+swa:1024", "full+state", "full+swa:1024+state")
COLUMNS = ("trace", "composition", "policy", "size", "hit %", "optimum %", "share %", "endless %", "s")


def main() -> None:
    options = read_options()
    report = Report("replay", seed=0, settings={"requests": options.requests, "traces": str(options.traces)})
    out = console()
    results: list[SweepResult] = []
    absent = []
    for name in options.only or TRACES:
        path = options.traces / f"{name}.jsonl.gz"
        if not path.exists():
            absent.append(name)
            continue
        trace = PagedTrace(FileTrace(path, requests_max=options.requests))
        for text in options.compositions or COMPOSITIONS:
            plan = SweepPlan(parse_composition(text), policies=tuple(POLICIES), core=options.core)
            results.append(sweep(trace, plan))
            out.print(f"{name}, {text}: done")
    if absent:
        out.print(f"not there, left out: {', '.join(absent)}")
    report.results["absent"] = absent
    report.results |= as_json(results)
    show("Hit rates", COLUMNS, [row(result, point) for result in results for point in result.points], out)
    out.print(report.machine.line())
    out.print(f"wrote {report.save(options.out)}")


def row(result: SweepResult, point: SweepPoint) -> tuple[object, ...]:
    best, share = point.optimum, point.share_of_optimum
    assert best is not None
    assert share is not None
    mark = "<= " if best.kind == "bound" else ""
    return (
        result.trace,
        result.composition,
        point.policy,
        f"{point.capacity:.0%}",
        100 * point.figures.hit_rate,
        f"{mark}{100 * best.hit_rate:.1f}",
        f"{'>= ' if mark else ''}{100 * share:.1f}",
        100 * result.endless_hit_rate,
        point.figures.wall_s,
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument(
        "--only", action="append", help="a trace, as FOLDER/FILE without ending; may be repeated"
    )
    parser.add_argument("--compositions", action="append", help="a composition; may be repeated")
    parser.add_argument("--requests", type=int, default=0, help="stop each trace after so many; 0 for all")
    parser.add_argument("--core", default="auto")
    parser.add_argument("--out", type=Path, default=ROOT / "out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
