"""Agents whose histories do not fit on the device: with the device alone, with host memory, with a store.

Each agent's prompts grow as in a recorded trajectory of a coding agent, scaled down; the agents take turns,
in another order each round. That is the worst case for a small cache: when an agent comes back, all others
have been there. The device's pools hold a quarter of the working set, the host's half of it, the store all.

Prompts are token ids; one token is generated. Each request is sent to three servers in turn, one at a time:
L1, L1+L2, L1+L2+L3; so what else the machine does falls on all of them. Told are the hit rate, the time to
the first token, and the effective input tokens a second: prompt tokens served in a second of the time that
answers took, computed or not. The limit is told too: no tier can be faster than computing what nobody has
computed before, and bringing up what somebody has.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.harness import Report, Spread, console, show
from bench.serve.agents import Ask, even_lengths, in_rounds, scaled, trajectory_lengths
from bench.serve.models import bench_model
from bench.serve.options import shared_options
from bench.serve.sending import Run, endless_rate, pool_flags, send_in_turn, texts_that_differ
from bench.serve.tiers_plot import plot
from rich.console import Console

FAMILIES = ("deepseek_v4", "kimi_linear", "inkling")
"""Full attention and windows with sidecars; full attention and states; all three."""
TIERS = ("L1", "L1+L2", "L1+L2+L3")
ROUNDS_SHOWN = 10


def main() -> int:
    """Runs the benchmark; 1 when a text differed between the tiers."""
    options = arguments()
    out = console()
    settings = {
        name: getattr(options, name)
        for name in ("preset", "agents", "turns", "skip_turns", "last_tokens", "page_size")
    }
    settings |= {"device_share": options.device_share, "host_share": options.host_share}
    report = Report("serve-tiers", options.seed, settings)
    out.print(report.machine.line())
    lengths = trajectories(options)
    same = True
    for family in options.families:
        model = bench_model(family, options.preset, options.out / "bench-models")
        asks = list(in_rounds(lengths, options.preset, options.seed))
        runs = measure(options, model, asks, out)
        differing = texts_that_differ(runs)
        same = same and not differing
        ceiling = endless_rate(asks, options.page_size)
        show_runs(family, runs, ceiling, differing, out)
        report.results[family] = as_json(runs, ceiling, differing)
        report.save(options.out)
    out.print(f"written: {report.save(options.out)}")
    if options.plot:
        out.print(f"drawn: {plot(report.results, options.plot)}")
    return 0 if same else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = shared_options(__doc__, FAMILIES)
    parser.add_argument("--tiers", nargs="+", default=list(TIERS), choices=TIERS)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--skip-turns", type=int, default=0, help="of each trajectory, before the first")
    parser.add_argument("--last-tokens", type=int, default=2400, help="tokens of the last prompts")
    parser.add_argument("--page-size", type=int, default=16, metavar="TOKENS")
    parser.add_argument("--device-share", type=float, default=0.25, help="of the working set")
    parser.add_argument("--host-share", type=float, default=0.5, help="of the working set")
    parser.add_argument("--trace", type=Path, help="recorded trajectories; even growth without")
    parser.add_argument("--plot", type=Path, help="file for a plot")
    return parser.parse_args()


def trajectories(options: argparse.Namespace) -> list[list[int]]:
    """Prompt lengths of every agent."""
    if options.trace is None:
        return scaled(even_lengths(options.agents, options.turns), options.last_tokens)
    found = trajectory_lengths(options.trace, options.agents, options.turns, options.skip_turns)
    if len(found) < options.agents:
        raise SystemExit(f"{options.trace} has {len(found)} sessions of {options.turns} growing turns")
    return scaled(found, options.last_tokens)


def measure(options: argparse.Namespace, model: Path, asks: Sequence[Ask], out: Console) -> list[Run]:
    """All requests to a server with each of the tiers."""
    store = options.out / "bench-store"
    shutil.rmtree(store, ignore_errors=True)
    flags = pool_flags(model, asks, options.page_size, options.device_share)
    host = ["--host-ratio", str(options.host_share / options.device_share)]
    lower = {
        "L1": [],
        "L1+L2": host,
        "L1+L2+L3": [*host, "--store", f"file:{store}?size=20GB", "--prefetch-policy", "wait"],
    }
    runs = send_in_turn(model, {tier: [*flags, *lower[tier]] for tier in options.tiers}, asks, out)
    shutil.rmtree(store, ignore_errors=True)
    return runs


def show_runs(family: str, runs: Sequence[Run], ceiling: float, differing: int, out: Console) -> None:
    """One line a tier, and the ratios."""
    rows = []
    for run in runs:
        ttft = Spread.of([reply.ttft_s for reply in run.replies])
        rows.append(
            (
                run.name,
                f"{run.hit_rate:.1%}",
                f"{run.hit_rate / ceiling:.1%}",
                ttft.mean * 1e3,
                ttft.p99 * 1e3,
                f"{run.tokens_per_s:,.0f}",
                f"{run.tokens_per_s / runs[0].tokens_per_s:.1f}x",
                by_tier(run),
            )
        )
    columns = (
        *("", "hit rate", "of an endless device's", "TTFT mean, ms", "p99"),
        *("effective input tokens/s", "over the first", "reused from device / host / store"),
    )
    total = runs[0].prompt_tokens
    show(
        f"{family}: {len(runs[0].asks)} requests, {total:,} prompt tokens, {differing} texts differ",
        columns,
        rows,
        out,
    )
    rates = [dict(run.hit_rate_by_turn()) for run in runs]
    turns = sorted(rates[0])[:: max(1, len(rates[0]) // ROUNDS_SHOWN)]
    lines = [
        (run.name, *(f"{rate[turn]:.0%}" for turn in turns)) for run, rate in zip(runs, rates, strict=True)
    ]
    show(f"{family}: hit rate by turn", ("", *(f"turn {turn}" for turn in turns)), lines, out)
    show(*moved_table(family, runs[-1]), out)
    out.print(limit_line(runs, ceiling))


def by_tier(run: Run) -> str:
    """Reused tokens by where they lay."""
    host, store = run.stats["host_tokens"], run.stats["store_tokens"]
    return f"{run.stats['reused_tokens'] - host - store:,} / {host:,} / {store:,}"


def moved_table(family: str, run: Run) -> tuple[str, Sequence[str], Sequence[Sequence[object]]]:
    """What moved on the way up, against what the rules need."""
    bytes_of = {pool["component"]: pool["slot_bytes"] for pool in run.info["pools"]}
    rows = []
    for move in run.stats["moved"]:
        needed = move["pages"] * bytes_of[move["component"]]
        if move["target"] == "store":
            continue
        rows.append(
            (
                f"{move['component']}: {move['source']} to {move['target']}",
                f"{move['pages']:,}",
                move["bytes"] / 2**20,
                f"{move['bytes'] / needed:.3f}" if needed else "-",
            )
        )
    return f"{family}, {run.name}: bytes moved", ("", "pages", "MiB", "of what the pages need"), rows


def limit_line(runs: Sequence[Run], ceiling: float) -> str:
    """What no lower tier can beat: computing what is new, and loading what is not."""
    speed = runs[-1].info.get("break_even")
    if not speed:
        return ""
    prefill_us = speed["prefill_s_per_token"] * 1e6
    bytes_per_token = sum(
        move["bytes"]
        for move in runs[-1].stats["moved"]
        if (move["source"], move["target"]) == ("host", "device")
    ) / max(1, runs[-1].stats["host_tokens"] + runs[-1].stats["store_tokens"])
    load_us = bytes_per_token * (speed["host_s_per_byte"] + speed["store_s_per_byte"]) * 1e6
    most = 1 / ((1 - ceiling) + ceiling * load_us / prefill_us)
    return (
        f"limit: computing takes {prefill_us:,.0f} us a token, bringing one up from the store"
        f" {load_us:,.1f} us; with {ceiling:.1%} reused no tier is more than {most:,.1f} times as fast as"
        f" computing everything"
    )


def as_json(runs: Sequence[Run], ceiling: float, differing: int) -> dict[str, Any]:
    """All of one model's figures."""
    return {
        "prompt_tokens": runs[0].prompt_tokens,
        "endless_hit_rate": ceiling,
        "texts_that_differ": differing,
        "limit": limit_line(runs, ceiling),
        "runs": [
            {
                "tier": run.name,
                "hit_rate": run.hit_rate,
                "tokens_per_s": run.tokens_per_s,
                "wall_s": run.wall_s,
                "ttft_s": asdict(Spread.of([reply.ttft_s for reply in run.replies])),
                "hit_rate_by_turn": run.hit_rate_by_turn(),
                "stats": run.stats,
                "break_even": run.info.get("break_even"),
            }
            for run in runs
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
