"""One client's conversation: time to first token with the cache on and off, and what was computed again.

A system prompt of 200 tokens, then turns of 150 tokens; 4 tokens are generated each turn and become part of
the conversation. With 20 turns the prompts have 350, 504, ... 3,276 tokens, 36,260 together. Prompts are
token ids, so no tokenizer stands between. Every turn is asked twice of the same server, once with the cache
and once with `use_cache: false`, in alternating order: noise of the machine meets both. The tokens of both
answers are compared.

Another server can be set beside it with --url: it must serve the model folder that this script makes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from bench.harness import Report, Spread, console, show
from bench.serve.breakdown import breakdown, parts_table
from bench.serve.client import Reply, complete
from bench.serve.models import FAMILIES, bench_model, random_tokens
from bench.serve.options import shared_options
from bench.serve.published import CONVERSATIONS
from demo.talking import Server
from rich.console import Console

SYSTEM_TOKENS = 200
TURN_TOKENS = 150
GENERATED_TOKENS = 4
PUBLISHED_TURNS = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn with the cache on and off.

    Attributes:
        prompt: of the turn, token ids.
        new_tokens: tokens of the prompt that no turn before has computed: what was added, and the last
            token that was generated.
        on, off: the answers; `off` is None for a server that cannot leave the cache out.
    """

    number: int
    prompt: tuple[int, ...]
    new_tokens: int
    on: Reply
    off: Reply | None

    @property
    def again_tokens(self) -> int:
        """Tokens that were computed though a turn before had computed them."""
        return len(self.prompt) - self.on.reused_tokens - self.new_tokens

    @property
    def same(self) -> bool:
        """Whether both answers have the same tokens."""
        return self.off is None or self.on.tokens == self.off.tokens

    @property
    def differs_at(self) -> str:
        """`same`, or the first token that differs."""
        if self.off is None:
            return "-"
        pairs = zip(self.on.tokens, self.off.tokens, strict=True)
        return next((f"token {i}" for i, (on, off) in enumerate(pairs) if on != off), "same")


def main() -> int:
    """Runs the benchmark; 1 when a text differed with and without the cache."""
    options = arguments()
    out = console()
    settings = {name: getattr(options, name) for name in ("preset", "turns", "page_size")}
    report = Report("serve-conversation", options.seed, settings)
    out.print(report.machine.line())
    rows, same = [], True
    for family in options.families:
        model = bench_model(family, options.preset, options.out / "bench-models")
        turns = measure(options, model, out)
        show_turns(family, turns, out)
        rows.append(summary(family, turns))
        report.results[family] = {"turns": [as_json(turn) for turn in turns], "summary": rows[-1]}
        same = same and all(turn.same for turn in turns)
        if options.breakdown:
            parts = breakdown(model, [turn.prompt for turn in turns], GENERATED_TOKENS)
            http_s = min(turn.on.ttft_s - turn.on.engine_s for turn in turns[-5:])
            show(*parts_table(family, parts, http_s), out)
            report.results[family]["breakdown"] = {**asdict(parts), "http_s": http_s}
    show_summary(rows, out)
    if options.preset == "bench" and options.turns == PUBLISHED_TURNS:
        report.results["published"] = [asdict(other) for other in CONVERSATIONS]
        show_published(rows, out)
    out.print(f"written: {report.save(options.out)}")
    return 0 if same else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = shared_options(__doc__, FAMILIES)
    parser.add_argument("--page-size", type=int, default=16, metavar="TOKENS")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--breakdown", action="store_true", help="what the last turn's time is spent on")
    parser.add_argument("--url", default="", help="a server that runs already; one family only")
    options = parser.parse_args()
    if options.url and len(options.families) != 1:
        parser.error("--url needs --families with one family, the one that is served there")
    return options


def measure(options: argparse.Namespace, model: Path, out: Console) -> list[Turn]:
    """All turns of one model."""
    if options.url:
        with httpx2.Client(base_url=options.url, timeout=600) as client:
            return list(converse(client, options, {"model": str(model)}, off=False))
    flags = ("--threads", "1", "--max-model-len", "8192", "--log-level", "warning")
    with (
        Server(model, out, *flags, "--page-size", str(options.page_size)) as server,
        httpx2.Client(base_url=server.url, timeout=600) as client,
    ):
        return list(converse(client, options, {}, off=True))


def converse(
    client: httpx2.Client, options: argparse.Namespace, fields: dict[str, Any], *, off: bool
) -> Iterator[Turn]:
    """Holds the conversation; yields each turn when it is done.

    Args:
        client: with the server's address.
        options: of the command line.
        fields: further fields of each request.
        off: whether the server can leave the cache out.
    """
    rng = np.random.default_rng(options.seed)
    warm_up = random_tokens(rng, SYSTEM_TOKENS, options.preset)
    complete(client, warm_up, GENERATED_TOKENS, **fields, **({"use_cache": False} if off else {}))
    prompt = random_tokens(rng, SYSTEM_TOKENS, options.preset)
    computed = 0
    for number in range(1, options.turns + 1):
        prompt = prompt + random_tokens(rng, TURN_TOKENS, options.preset)
        replies: dict[bool, Reply] = {}
        for use_cache in ((True, False) if number % 2 else (False, True)) if off else (True,):
            more = {**fields, "use_cache": use_cache} if off else fields
            replies[use_cache] = complete(client, prompt, GENERATED_TOKENS, **more)
        yield Turn(number, tuple(prompt), len(prompt) - computed, replies[True], replies.get(False))
        prompt = prompt + list(replies[True].tokens)
        computed = len(prompt) - 1  # the last token was chosen, not computed


def show_turns(family: str, turns: Sequence[Turn], out: Console) -> None:
    """One line a turn."""
    rows = []
    for turn in turns:
        on_ms, off_ms = turn.on.ttft_s * 1e3, turn.off.ttft_s * 1e3 if turn.off else float("nan")
        rows.append(
            (
                f"turn {turn.number}",
                len(turn.prompt),
                turn.on.reused_tokens,
                turn.new_tokens,
                turn.again_tokens,
                turn.on.why,
                on_ms,
                off_ms,
                off_ms / on_ms,
                turn.differs_at,
            )
        )
    columns = (
        *("", "prompt", "reused", "new", "computed again", "lost, and why"),
        *("TTFT on, ms", "TTFT off, ms", "off/on", "texts"),
    )
    show(f"{family}: tokens of each turn, and time to first token", columns, rows, out)


def summary(family: str, turns: Sequence[Turn]) -> dict[str, Any]:
    """One model's figures; times in seconds."""
    later = turns[1:] or turns
    off = [turn.off.ttft_s for turn in turns if turn.off]
    return {
        "family": family,
        "prompt_tokens": sum(len(turn.prompt) for turn in turns),
        "reused_tokens": sum(turn.on.reused_tokens for turn in turns),
        "computed_again_mean": sum(turn.again_tokens for turn in later) / len(later),
        "computed_again_max": max(turn.again_tokens for turn in later),
        "ttft_on_s": asdict(Spread.of([turn.on.ttft_s for turn in turns])),
        "ttft_off_s": asdict(Spread.of(off)) if off else None,
        "same_text": all(turn.same for turn in turns) if off else None,
    }


def show_summary(rows: Sequence[dict[str, Any]], out: Console) -> None:
    """One line a model."""
    lines = []
    for row in rows:
        on, off = row["ttft_on_s"], row["ttft_off_s"]
        off_ms = off["mean"] * 1e3 if off else float("nan")
        lines.append(
            (
                row["family"],
                f"{row['reused_tokens']:,} of {row['prompt_tokens']:,}",
                f"{row['computed_again_mean']:.1f} (most {row['computed_again_max']})",
                on["mean"] * 1e3,
                on["median"] * 1e3,
                on["p99"] * 1e3,
                off_ms,
                off_ms / (on["mean"] * 1e3),
                {True: "same", False: "DIFFER", None: "-"}[row["same_text"]],
            )
        )
    columns = (
        *("model", "tokens reused", "computed again a turn", "TTFT on, mean ms", "median", "p99"),
        *("TTFT off, mean ms", "off/on", "texts"),
    )
    show("all turns", columns, lines, out)


def show_published(rows: Sequence[dict[str, Any]], out: Console) -> None:
    """Other servers' figures for the models that were run."""
    families = [row["family"] for row in rows]
    lines = [
        (
            f"{other.server}, {other.family}",
            f"{other.reused_tokens:,}" if other.reused_tokens else "not told, or none",
            f"{other.on_ms:,}",
            f"{other.off_ms:,}" if other.off_ms else "-",
        )
        for other in CONVERSATIONS
        if other.family in families
    ]
    columns = ("", "tokens reused", "TTFT on, mean ms", "TTFT off, mean ms")
    show("other servers, 2026-11, other runs: compare counts, hardly times", columns, lines, out)


def as_json(turn: Turn) -> dict[str, Any]:
    """A turn without its prompt."""
    return {
        "number": turn.number,
        "prompt_tokens": len(turn.prompt),
        "new_tokens": turn.new_tokens,
        "computed_again_tokens": turn.again_tokens,
        "texts": turn.differs_at,
        "on": asdict(turn.on),
        "off": asdict(turn.off) if turn.off else None,
    }


if __name__ == "__main__":
    sys.exit(main())
