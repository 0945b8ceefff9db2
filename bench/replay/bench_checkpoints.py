"""Which boundaries should get a recurrent state: reused tokens by placement, on real traces.

    python -m bench.replay.bench_checkpoints --traces FOLDER [--only NAME] [--quick N] [--docs docs/replay]

Composition `full+state`, with a pool for `full` that never runs out, so that states alone decide. Two
questions: of the states kept in an endless cache, which are ever hit (credit), and what does a pool of
states of a given size win with each placement. One request at a time; figures are kept as in bench_replay.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bench.harness import Report, command, console
from bench.replay.bench_replay import known, shared_options, traces_there
from bench.replay.cells import STATE_BYTES, Cell, Cells, TraceCells
from bench.replay.pages import slug, table

from graftline.cache.placement import parse_placement
from graftline.replay import SweepPlan, parse_composition, simulate
from graftline.replay.checkpoints import RANKS_SHOWN, credit_states
from graftline.replay.sweep import endless_slots

PLACEMENTS = (
    *("replay,end,answer,branch", "end,answer,branch", "answer,branch", "answer", "end,branch"),
    *("answer,branch,newest:1", "answer,branch,newest:2", "end,branch,newest:2"),
    *("grid:1024", "answer,branch,grid:4096"),
)
SHARES = (0.02, 0.05, 0.10, 0.25)
"""Sizes of the pool, as shares of the states that the first placement keeps in an endless cache."""
POLICIES = ("lru", "session", "cost")
COMPOSITION = "full+state"
SLOW = ("weka_claude_code/trace_k32", "miniswe_swebench/trace_k32")
DEFAULT_MAX = 3000
INTRODUCTION = """\
Written by `make bench-checkpoints`: composition `full+state`, one request at a time, a pool for `full` that
never runs out, so that states alone decide what is reused.

- **replay**: the last boundary before the prompt's end. **end**: the end of its last whole page (the same
  boundary where the prompt goes on behind it). **branch**: where a prompt left a known path. **answer**: the
  last whole page of prompt and answer, put into the tree when the request ends. **grid:N**: every N tokens of
  the prompt. **newest:k**: when a request ends, of the states that its session kept for itself (replay, end,
  answer) only the k deepest stay.
- *Credit*: an endless cache with all kinds but the grid; how many states were kept for each kind of
  boundary, how many of them any later request began at, and the reused tokens behind them.
- *Newer states*: how many newer states a session had when its request began at one of its own, as a share
  of the reused tokens: what thinning to the newest k would keep.
- Sizes of the pool are shares of the states that an endless cache keeps with all kinds but the grid. Tokens
  per MiB: reused tokens over the bytes of the smallest pool.
"""


class CheckpointCells(TraceCells):
    """Cells about placements of one trace."""

    def plan(self, placement: str) -> SweepPlan:
        return SweepPlan(parse_composition(COMPOSITION), core=self.core, placement=parse_placement(placement))

    def credit(self, placement: str) -> Cell:
        return self.cells.get(f"{self.name}-credit-{placement}", "", lambda: self._credit(placement))

    def states(self, placement: str, slots: int, policy: str) -> Cell:
        """One pool of states."""
        name = f"{self.name}-states-{placement}-{slots}-{policy}"
        return self.cells.get(name, policy, lambda: self._states(placement, slots, policy))

    def _credit(self, placement: str) -> Cell:
        trace, ahead = self.read()
        plan = self.plan(placement)
        slots = endless_slots(plan, ahead, trace.page_tokens)
        figures = credit_states(trace, plan.setup(slots, trace.page_tokens))
        return asdict(figures)

    def _states(self, placement: str, slots: int, policy: str) -> Cell:
        trace, ahead = self.read()
        plan = self.plan(placement)
        pools = endless_slots(plan, ahead, trace.page_tokens) | {"state": slots}
        figures = simulate(trace, plan.setup(pools, trace.page_tokens, policy))
        return {"reused_tokens": figures.reused_tokens, "evicted": figures.pools[1].evicted_slots}


def main() -> None:
    options = read_options()
    out = console()
    policies, unknown = known(POLICIES)
    report = Report("checkpoints", seed=0, settings={"requests": options.quick, "policies": list(policies)})
    folder = options.out / "replay" / (f"quick-{options.quick}" if options.quick else "all")
    cells = Cells(folder, tuple(options.again or ()))
    parts = ["# Where to keep recurrent states\n", INTRODUCTION]
    absent = []
    for name, path, limit in traces_there(options, absent, SLOW, DEFAULT_MAX):
        of_trace = CheckpointCells(path, limit, cells, options.core)
        parts.append(section(name, of_trace, policies, report.results, limit))
        out.print(f"{name}: done, {cells.computed} computed")
    parts.append(f"Command: `{command()}`. Machine: {report.machine.line()}.")
    if absent or unknown:
        parts.append(f"\nNot there, left out: {', '.join([*absent, *unknown])}.")
    out.print(f"wrote {report.save(options.out)}")
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        (options.docs / "checkpoints.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


def section(
    name: str, cells: CheckpointCells, policies: tuple[str, ...], results: dict[str, Any], limit: int
) -> str:
    """One trace."""
    credit = cells.credit(PLACEMENTS[0])
    kept = sum(kind["kept"] for kind in credit["by_kind"].values())
    sizes = [max(2, round(share * kept)) for share in SHARES]
    runs = {
        (placement, size, policy): cells.states(placement, size, policy)["reused_tokens"]
        for placement in PLACEMENTS
        for size in sizes
        for policy in policies
    }
    results[name] = {
        "credit": credit,
        "states": [[*key, reused] for key, reused in runs.items()],
    }
    first = f" (the first {limit:,} requests)" if limit else ""
    lines = [f"## {slug(name)}{first}\n"]
    lines += [f"An endless cache reuses {credit['reused_tokens'] / credit['prompt_tokens']:.1%}.\n"]
    lines += [credit_table(credit), "", rank_line(credit), ""]
    for policy in policies:
        lines += [f"Hit rate under `{policy}`:\n"]
        lines += [runs_table(runs, sizes, policy, credit["prompt_tokens"]), ""]
    return "\n".join(lines)


def credit_table(credit: Mapping[str, Any]) -> str:
    """States by kind."""
    total = max(1, credit["reused_tokens"])
    rows = [
        (
            kind,
            f"{found['kept']:,}",
            f"{found['hit'] / max(1, found['kept']):.0%}",
            f"{found['hit_tokens'] / total:.1%}",
            f"{found['hit_tokens'] / max(1, found['kept']):,.0f}",
        )
        for kind, found in sorted(credit["by_kind"].items(), key=lambda item: -item[1]["hit_tokens"])
    ]
    return table(("kept for", "states", "ever hit", "of the reused tokens", "tokens per state"), rows)


def rank_line(credit: Mapping[str, Any]) -> str:
    """Where hits lie, seen from the newest state."""
    total = max(1, credit["reused_tokens"])
    shares = [
        f"{rank}{'+' if rank == str(RANKS_SHOWN) else ''}: {tokens / total:.1%}"
        for rank, tokens in sorted(credit["tokens_by_rank"].items())
    ]
    return f"Newer states of the session at a hit: {', '.join(shares) or 'no hit'}."


def runs_table(
    runs: Mapping[tuple[str, int, str], int], sizes: list[int], policy: str, prompt_tokens: int
) -> str:
    """Placements by sizes; the best of each size in bold."""
    best = {size: max(runs[placement, size, policy] for placement in PLACEMENTS) for size in sizes}
    rows = []
    for placement in PLACEMENTS:
        cells = []
        for size in sizes:
            text = f"{runs[placement, size, policy] / prompt_tokens:.1%}"
            cells.append(f"**{text}**" if runs[placement, size, policy] == best[size] else text)
        mib = sizes[0] * STATE_BYTES / (1 << 20)
        rows.append((f"`{placement}`", *cells, f"{runs[placement, sizes[0], policy] / mib:,.0f}"))
    return table(("placement", *(f"{size:,} states" for size in sizes), "tokens per MiB"), rows)


def read_options() -> argparse.Namespace:
    return shared_options(__doc__ or "").parse_args()


if __name__ == "__main__":
    main()
