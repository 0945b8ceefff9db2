"""Orders of eviction, compared through the engine: time to the first token of agents that share a device.

The requests of a recorded run of many coding agents, in the order in which they came, with lengths scaled
down to what this machine can compute. There is a server for each policy; its pools hold a share of the
working set. Each request goes to every server in turn, one at a time: so the time to the first token is that
of loading and computing, and what else the machine does falls on all of them. Pauses between an agent's
requests are those of the recording with `--span`; an order of eviction may learn from them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.harness import Report, Spread, console, show
from bench.serve.agents import Ask, by_arrival, even_lengths, in_rounds, scaled
from bench.serve.models import bench_model
from bench.serve.options import shared_options
from bench.serve.sending import Run, endless_rate, pool_flags, send_in_turn, texts_that_differ
from rich.console import Console

LATE_SHARE = 0.25
"""The last requests are told apart too."""


def main() -> int:
    """Runs the benchmark; 1 when a text differed between the policies."""
    options = arguments()
    out = console()
    settings = {
        name: getattr(options, name)
        for name in ("preset", "requests", "factor", "page_size", "device_share", "span")
    }
    report = Report("serve-policies", options.seed, settings)
    out.print(report.machine.line())
    asks = requests(options)
    same = True
    for family in options.families:
        model = bench_model(family, options.preset, options.out / "bench-models")
        flags = pool_flags(model, asks, options.page_size, options.device_share)
        if options.host_share:
            flags += ["--host-ratio", str(options.host_share / options.device_share)]
        servers = {policy: [*flags, "--eviction-policy", policy] for policy in options.policies}
        runs = send_in_turn(model, servers, asks, out, options.span)
        differing = texts_that_differ(runs)
        same = same and not differing
        show_runs(family, runs, endless_rate(asks, options.page_size), differing, out)
        report.results[family] = {"texts_that_differ": differing, "runs": [as_json(run) for run in runs]}
        report.save(options.out)
    out.print(f"written: {report.save(options.out)}")
    return 0 if same else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = shared_options(__doc__, ["qwen3", "inkling"], preset="demo")
    parser.add_argument("--policies", nargs="+", default=["lru", "session"], metavar="POLICY")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--factor", type=float, default=0.08, help="tokens for each recorded one")
    parser.add_argument("--page-size", type=int, default=16, metavar="TOKENS")
    parser.add_argument("--device-share", type=float, default=0.3, help="of the working set")
    parser.add_argument(
        "--host-share", type=float, default=0.0, help="of the working set; 0 for no host tier"
    )
    parser.add_argument(
        "--span", type=float, default=0.0, help="seconds from the first arrival to the last, as recorded"
    )
    parser.add_argument("--trace", type=Path, help="a recorded run; agents in rounds without")
    return parser.parse_args()


def requests(options: argparse.Namespace) -> list[Ask]:
    """All requests, in their order."""
    if options.trace is None:
        turns = max(2, options.requests // 8)
        return list(in_rounds(scaled(even_lengths(8, turns), 1200), options.preset, options.seed))
    return by_arrival(options.trace, options.requests, options.factor, options.preset, options.seed)


def show_runs(family: str, runs: Sequence[Run], ceiling: float, differing: int, out: Console) -> None:
    """One line a policy, against the first."""
    first = mean_ttft(runs[0]), late_ttft(runs[0])
    rows = [
        (
            run.name,
            f"{run.hit_rate:.1%}",
            f"{run.hit_rate / ceiling:.1%}",
            mean_ttft(run) * 1e3,
            f"{mean_ttft(run) / first[0] - 1:+.1%}",
            late_ttft(run) * 1e3,
            f"{late_ttft(run) / first[1] - 1:+.1%}",
            Spread.of([reply.ttft_s for reply in run.replies]).p99 * 1e3,
        )
        for run in runs
    ]
    columns = (
        *("policy", "hit rate", "of an endless device's", "TTFT mean, ms", "against the first"),
        *("last quarter, ms", "against the first", "p99, ms"),
    )
    asks = runs[0].asks
    agents = len({ask.agent for ask in asks})
    title = (
        f"{family}: {len(asks)} requests of {agents} agents, {runs[0].prompt_tokens:,} prompt tokens,"
        f" {differing} texts differ"
    )
    show(title, columns, rows, out)


def mean_ttft(run: Run) -> float:
    """Seconds."""
    return Spread.of([reply.ttft_s for reply in run.replies]).mean


def late_ttft(run: Run) -> float:
    """Of the last requests, seconds."""
    count = max(1, int(len(run.replies) * LATE_SHARE))
    return Spread.of([reply.ttft_s for reply in run.replies[-count:]]).mean


def as_json(run: Run) -> dict[str, Any]:
    """One policy's figures."""
    return {
        "policy": run.name,
        "hit_rate": run.hit_rate,
        "wall_s": run.wall_s,
        "ttft_s": asdict(Spread.of([reply.ttft_s for reply in run.replies])),
        "late_ttft_s": late_ttft(run),
        "hit_rate_by_turn": run.hit_rate_by_turn(),
        "stats": run.stats,
    }


if __name__ == "__main__":
    sys.exit(main())
