"""What sessions are worth that nobody names: reused tokens with the trace's sessions, inferred ones, none.

    python -m bench.replay.bench_inference --traces FOLDER [--only NAME] [--quick N] [--docs docs/replay]

Composition `full`, one request at a time; figures are kept as in bench_replay.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from bench.harness import Report, command, console
from bench.replay.bench_replay import shared_options, traces_there
from bench.replay.cells import Cell, Cells, TraceCells
from bench.replay.pages import slug, table

from graftline.replay import SweepPlan, parse_composition, simulate

COMPOSITION = "full"
POLICIES = ("session", "cost", "gittins")
CAPACITIES = (0.05, 0.10, 0.25)
HOW = {"told": (True, False), "inferred": (False, True), "none": (False, False)}
"""Whether the cache is told of sessions, and whether it infers them."""
SLOW = ("weka_claude_code/trace_k32", "miniswe_swebench/trace_k32")
DEFAULT_MAX = 3000
INTRODUCTION = """\
Written by `make bench-inference`: composition `full`, one request at a time; hit rates at percents of what an
endless cache would hold.

- **told**: the cache knows the sessions that the trace names. **inferred**: it is told of none and finds them
  by itself (rule S-9). **none**: it knows of none.
"""


class InferenceCells(TraceCells):
    """Cells about the sessions of one trace."""

    def rate(self, capacity: float, policy: str, how: str) -> float:
        """One run's hit rate."""
        name = f"{self.name}-{COMPOSITION}-{capacity}-{policy}-sessions-{how}"
        cell = self.cells.get(name, policy, lambda: self._sessions(capacity, policy, how))
        return float(cell["reused_tokens"] / self.base(COMPOSITION)["prompt_tokens"])

    def _sessions(self, capacity: float, policy: str, how: str) -> Cell:
        trace, _ = self.read()
        told, inferred = HOW[how]
        composition = parse_composition(COMPOSITION)
        plan = SweepPlan(composition, core=self.core, sessions=told, infer_sessions=inferred)
        slots = self._slots(composition, capacity)
        figures = simulate(trace, plan.setup(slots, trace.page_tokens, policy))
        return {"reused_tokens": figures.reused_tokens, "wall_s": figures.wall_s}


def main() -> None:
    options = read_options()
    out = console()
    report = Report("inference", seed=0, settings={"requests": options.quick, "policies": list(POLICIES)})
    folder = options.out / "replay" / (f"quick-{options.quick}" if options.quick else "all")
    cells = Cells(folder, tuple(options.again or ()))
    parts, absent = ["# Sessions that nobody names\n", INTRODUCTION], []
    for name, path, limit in traces_there(options, absent, SLOW, DEFAULT_MAX):
        of_trace = InferenceCells(path, limit, cells, options.core)
        rates = rates_of(of_trace)
        report.results[name] = [[*key, rate] for key, rate in rates.items()]
        first = f" (the first {limit:,} requests)" if limit else ""
        parts += [f"## {slug(name)}{first}\n", rates_table(rates), ""]
        out.print(f"{name}: done, {cells.computed} computed")
    parts.append(f"Command: `{command()}`. Machine: {report.machine.line()}.")
    if absent:
        parts.append(f"\nNot there, left out: {', '.join(absent)}.")
    out.print(f"wrote {report.save(options.out)}")
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        (options.docs / "inference.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


def rates_of(cells: InferenceCells) -> dict[tuple[str, str, float], float]:
    """Hit rates by policy, by what is known of sessions, and by size."""
    return {
        (policy, how, capacity): cells.rate(capacity, policy, how)
        for policy in POLICIES
        for how in HOW
        for capacity in CAPACITIES
    }


def rates_table(rates: Mapping[tuple[str, str, float], float]) -> str:
    """A row for each policy and what is known of sessions; the best of a policy at a size in bold."""
    rows = []
    for policy in POLICIES:
        best = {size: max(rates[policy, how, size] for how in HOW) for size in CAPACITIES}
        for how in HOW:
            texts = [(f"{rates[policy, how, size]:.1%}", f"{best[size]:.1%}") for size in CAPACITIES]
            rows.append((f"`{policy}`", how, *(f"**{a}**" if a == b else a for a, b in texts)))
    return table(("order", "sessions", *(f"{size:.0%}" for size in CAPACITIES)), rows)


def read_options() -> argparse.Namespace:
    return shared_options(__doc__ or "").parse_args()


if __name__ == "__main__":
    main()
