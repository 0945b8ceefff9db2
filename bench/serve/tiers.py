"""Agents whose histories do not fit on the device: with the device alone, with host memory, with a store.

Each agent's prompts grow as in a recorded trajectory of a coding agent, scaled down; the agents take turns,
in another order each round. That is the worst case for a small cache: when an agent comes back, all others
have been there. The device's pools hold a quarter of the working set, the host's half of it, the store all.

Prompts are token ids; one token is generated. The same requests are sent to three servers, one after another:
L1, L1+L2, L1+L2+L3. Told are the hit rate, the time to the first token, and the effective input tokens a
second: prompt tokens served in a second of wall time, computed or not. The limit is told too: no tier can be
faster than computing what nobody has computed before, and bringing up what somebody has.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
from bench.harness import Report, Spread, console, show
from bench.serve.agents import SHARED_TOKENS, Ask, even_lengths, in_rounds, scaled, trajectory_lengths
from bench.serve.client import Reply, complete
from bench.serve.models import bench_model
from bench.serve.tiers_plot import plot
from demo.talking import Server
from rich.console import Console

from graftline.engine.layouts import plan_layout

FAMILIES = ("deepseek_v4", "kimi_linear", "inkling")
"""Full attention and windows with sidecars; full attention and states; all three."""
TIERS = ("L1", "L1+L2", "L1+L2+L3")
ROUNDS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Run:
    """One server's answers to all requests.

    Attributes:
        wall_s: from the first request to the last answer.
        stats: the server's own counters at the end.
        info: what it says of itself.
    """

    tier: str
    asks: Sequence[Ask]
    replies: Sequence[Reply]
    wall_s: float
    stats: Mapping[str, Any]
    info: Mapping[str, Any]

    @property
    def prompt_tokens(self) -> int:
        """Of all requests."""
        return sum(len(ask.prompt) for ask in self.asks)

    @property
    def reused_tokens(self) -> int:
        """Of all requests."""
        return sum(reply.reused_tokens for reply in self.replies)

    @property
    def hit_rate(self) -> float:
        """Reused share of the prompt tokens."""
        return self.reused_tokens / self.prompt_tokens

    @property
    def tokens_per_s(self) -> float:
        """Effective input tokens a second."""
        return self.prompt_tokens / self.wall_s

    def hit_rate_by_turn(self) -> list[tuple[int, float]]:
        """Hit rate of each turn over all agents."""
        turns = sorted({ask.turn for ask in self.asks})
        rates = []
        for turn in turns:
            pairs = [(a, r) for a, r in zip(self.asks, self.replies, strict=True) if a.turn == turn]
            prompt = sum(len(ask.prompt) for ask, _ in pairs)
            rates.append((turn, sum(reply.reused_tokens for _, reply in pairs) / prompt))
        return rates


def main() -> int:
    """Runs the benchmark; 1 when a text differed between the tiers."""
    options = arguments()
    out = console()
    settings = {
        name: getattr(options, name)
        for name in ("preset", "agents", "turns", "last_tokens", "page_size", "device_share", "host_share")
    }
    report = Report("serve-tiers", options.seed, settings)
    out.print(report.machine.line())
    lengths = trajectories(options)
    same = True
    for family in options.families:
        model = bench_model(family, options.preset, options.out / "bench-models")
        asks = list(in_rounds(lengths, options.preset, options.seed))
        runs = [measure(options, model, tier, asks, out) for tier in options.tiers]
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--tiers", nargs="+", default=list(TIERS), choices=TIERS)
    parser.add_argument("--preset", default="bench", help="demo: 6-7 M parameters; bench: 30-40 M")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--last-tokens", type=int, default=2400, help="tokens of the last prompts")
    parser.add_argument("--page-size", type=int, default=16, metavar="TOKENS")
    parser.add_argument("--device-share", type=float, default=0.25, help="of the working set")
    parser.add_argument("--host-share", type=float, default=0.5, help="of the working set")
    parser.add_argument("--trace", type=Path, help="recorded trajectories; even growth without")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for models and results")
    parser.add_argument("--plot", type=Path, help="file for a plot")
    return parser.parse_args()


def trajectories(options: argparse.Namespace) -> list[list[int]]:
    """Prompt lengths of every agent."""
    if options.trace is None:
        return scaled(even_lengths(options.agents, options.turns), options.last_tokens)
    found = trajectory_lengths(options.trace, options.agents, options.turns)
    if len(found) < options.agents:
        raise SystemExit(f"{options.trace} has {len(found)} sessions of {options.turns} growing turns")
    return scaled(found, options.last_tokens)


def endless_rate(asks: Sequence[Ask], page_tokens: int) -> float:
    """Hit rate of an endless device: each prompt's longest prefix of an earlier one, in whole pages."""
    before: dict[int, int] = {}
    reused = shared = 0
    for ask in asks:
        known = before.get(ask.agent, shared)
        reused += min(known, len(ask.prompt) - 1) // page_tokens * page_tokens
        before[ask.agent], shared = len(ask.prompt), SHARED_TOKENS
    return reused / sum(len(ask.prompt) for ask in asks)


def pool_slots(options: argparse.Namespace, model: Path, asks: Sequence[Ask], share: float) -> dict[str, int]:
    """Slots of each pool for a share of the working set, and for what one request needs besides."""
    from transformers import AutoConfig  # noqa: PLC0415  only the parent process of a run needs it

    layout = plan_layout(AutoConfig.from_pretrained(model))
    page = options.page_size * layout.page_multiple // _gcd(options.page_size, layout.page_multiple)
    last = {ask.agent: len(ask.prompt) for ask in asks}
    pages = sum(length // page + 1 for length in last.values())
    longest = max(last.values()) // page + 2
    slots = {}
    for plan in layout.components:
        if plan.rule.holds_state:
            slots[plan.name] = max(8, round(share * 2 * len(last)) + 4)
            continue
        window = longest - plan.rule.first_page(longest, page)
        needed = pages if plan.rule.prefix_closed else len(last) * window
        step = 512 // page + 2
        slots[plan.name] = max(round(share * needed), 2 * window + step if window < longest else longest + 4)
    return slots


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def measure(options: argparse.Namespace, model: Path, tier: str, asks: Sequence[Ask], out: Console) -> Run:
    """All requests to one server."""
    store = options.out / "bench-store"
    shutil.rmtree(store, ignore_errors=True)
    slots = pool_slots(options, model, asks, options.device_share)
    flags = ["--threads", "1", "--max-model-len", "8192", "--log-level", "warning"]
    flags += ["--page-size", str(options.page_size), "--chunk-tokens", "512"]
    flags += ["--slots", ",".join(f"{name}={count}" for name, count in slots.items())]
    if "L2" in tier:
        flags += ["--host-ratio", str(options.host_share / options.device_share)]
    if "L3" in tier:
        flags += ["--store", f"file:{store}?size=20GB", "--prefetch-policy", "wait"]
    with Server(model, out, *flags) as server, httpx2.Client(base_url=server.url, timeout=600) as client:
        complete(client, asks[0].prompt[:40], 1, use_cache=False)
        started = time.perf_counter()
        replies = [complete(client, ask.prompt, 1, session_id=f"agent-{ask.agent}") for ask in asks]
        wall_s = time.perf_counter() - started
        stats, info = client.get("/cache/stats").json(), client.get("/server_info").json()
    shutil.rmtree(store, ignore_errors=True)
    return Run(tier, asks, replies, wall_s, stats, info)


def texts_that_differ(runs: Sequence[Run]) -> int:
    """Requests whose tokens were not the same in every run."""
    return sum(
        len({reply.tokens for reply in replies}) > 1
        for replies in zip(*(r.replies for r in runs), strict=True)
    )


def show_runs(family: str, runs: Sequence[Run], ceiling: float, differing: int, out: Console) -> None:
    """One line a tier, and the ratios."""
    rows = []
    for run in runs:
        ttft = Spread.of([reply.ttft_s for reply in run.replies])
        rows.append(
            (
                run.tier,
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
        (run.tier, *(f"{rate[turn]:.0%}" for turn in turns)) for run, rate in zip(runs, rates, strict=True)
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
    return f"{family}, {run.tier}: bytes moved", ("", "pages", "MiB", "of what the pages need"), rows


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
                "tier": run.tier,
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
