"""make demo: a small hybrid model, served, talked to; what was reused, and that it changes nothing.

Every turn is asked twice, with the cache and without it. The texts must be equal: the exit status says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
from conversation import SYSTEM, TURNS
from rich.console import Console
from rich.table import Table
from talking import Answer, Server, ask_chat

from graftline.zoo.make import make_model

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, asked with and without the cache."""

    number: int
    cached: Answer
    plain: Answer

    @property
    def same(self) -> bool:
        """Whether both texts are equal."""
        return self.cached.text == self.plain.text


def main() -> int:
    """Runs the demo; 0 when every text was the same with and without the cache."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 130)
    model = Path(options.model) if options.model else small_model(options.family, Path(options.out), console)
    with Server(model, console) as server, httpx2.Client(base_url=server.url, timeout=600) as client:
        ask_chat(client, [{"role": "user", "content": "warm up"}], options.tokens, use_cache=False)
        turns = list(talk(client, options.tokens))
        show(turns, console)
    return verdict(turns, model, console)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--family", default="inkling", help="family of the small model (default: %(default)s)"
    )
    parser.add_argument("--model", default="", help="folder of a model of yours, in place of a small one")
    parser.add_argument(
        "--tokens", type=int, default=24, help="tokens to generate a turn (default: %(default)s)"
    )
    parser.add_argument("--out", default="out", help="where the model is put (default: %(default)s)")
    return parser.parse_args()


def small_model(family: str, out: Path, console: Console) -> Path:
    """The demo's model, made on the first run."""
    path = out / f"demo-{family}"
    if not (path / "config.json").exists():
        made = make_model(family, path, preset="demo", overwrite=True)
        console.print(f"made {made.path}: {made.parameters / 1e6:.1f} M parameters, random weights")
    return path


def talk(client: httpx2.Client, tokens: int) -> Iterator[Turn]:
    """Holds the conversation; the model's answers become part of it."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    for number, said in enumerate(TURNS, start=1):
        messages.extend({"role": role, "content": content} for role, content in said)
        cached = ask_chat(client, messages, tokens, use_cache=True)
        plain = ask_chat(client, messages, tokens, use_cache=False)
        yield Turn(number, cached, plain)
        messages.append({"role": "assistant", "content": cached.text})


def show(turns: list[Turn], console: Console) -> None:
    """One line a turn."""
    components = list(turns[0].cached.boundaries)
    table = Table(title="reuse by turn (tokens; TTFT in milliseconds)")
    for name in ("turn", "prompt", "reused", *(f"{name} up to" for name in components)):
        table.add_column(name, justify="right")
    table.add_column("not reused, and why")
    for name in ("TTFT cached", "TTFT plain", "same text"):
        table.add_column(name, justify="right")
    for turn in turns:
        answer = turn.cached
        why = f"{answer.lost_tokens}: {answer.limited_by}, {answer.reason}" if answer.lost_tokens else "-"
        table.add_row(
            str(turn.number),
            str(answer.prompt_tokens),
            str(answer.reused_tokens),
            *(str(answer.boundaries[name]) for name in components),
            why,
            f"{answer.ttft_s * 1e3:.0f}",
            f"{turn.plain.ttft_s * 1e3:.0f}",
            "yes" if turn.same else "NO",
        )
    console.print(table)


def verdict(turns: list[Turn], model: Path, console: Console) -> int:
    """Says what was seen and what to try next."""
    different = [turn.number for turn in turns if not turn.same]
    prompt = sum(turn.cached.prompt_tokens for turn in turns)
    reused = sum(turn.cached.reused_tokens for turn in turns)
    console.print(f"{reused} of {prompt} prompt tokens were reused ({reused / prompt:.0%}).")
    if different:
        console.print(f"the texts of turns {different} differ with and without the cache: this is a fault")
        return 1
    console.print("every text was the same with and without the cache.")
    console.print("\nnext:")
    for line in (
        "python demo/run.py --family qwen3_next      another composition (see: graftline make-model --list)",
        f"graftline serve {model}      serve it yourself, then: graftline chat",
        "make bench      the benchmarks",
        "docs/design.md      the rules behind the numbers",
    ):
        console.print(f"  {line}", markup=False, highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
