"""make demo-real: real weights of a small hybrid model, opt-in; see the notice that it prints first.

A document longer than the model's sliding window, and talks about it that begin anew after it. Every turn
is asked twice, with the cache and without it. The texts must be equal: the exit status says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
from document import DOCUMENT, TALKS
from rich.console import Console
from run import Turn, show
from talking import Server, ask
from weights import NOTICE, real_model

ACCEPT = "GRAFTLINE_ACCEPT_TERMS"


def main() -> int:
    """Runs the demo; 0 when every text was the same, 1 when not, 2 when the terms were not accepted."""
    options = arguments()
    console = Console(width=None if sys.stdout.isatty() else 130, highlight=False, markup=False)
    console.print(NOTICE)
    if not accepted(options.yes):
        console.print(f"\nNothing was installed. To accept: --yes, or {ACCEPT}=gemma in the environment.")
        return 2
    model = real_model(Path(options.out), console)
    flags = ("--threads", "1", "--dtype", "float32", "--max-model-len", "4096", "--log-level", "warning")
    with Server(model, console, *flags) as server, httpx2.Client(base_url=server.url, timeout=600) as client:
        ask(client, "/v1/completions", {"prompt": "Warm up", "use_cache": False}, 2)
        turns = list(talk(client, options.tokens, console))
    show(turns, console)
    return verdict(turns, console)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--yes", action="store_true", help="accept the terms that the notice names")
    parser.add_argument(
        "--tokens", type=int, default=8, help="tokens to generate a turn (default: %(default)s)"
    )
    parser.add_argument("--out", default="out", help="where everything is put (default: %(default)s)")
    return parser.parse_args()


def accepted(yes: bool) -> bool:
    """Whether the terms were accepted: by flag, by environment, or by typing it."""
    if yes or os.environ.get(ACCEPT) == "gemma":
        return True
    return sys.stdin.isatty() and input("Type 'yes' to accept: ").strip() == "yes"


def talk(client: httpx2.Client, tokens: int, console: Console) -> Iterator[Turn]:
    """Holds the talks; the model's answers become part of them."""
    number = 0
    for questions in TALKS:
        text = DOCUMENT
        for question in questions:
            number += 1
            text += f"Question: {question}\nAnswer:"
            cached = ask(client, "/v1/completions", {"prompt": text, "use_cache": True}, tokens)
            plain = ask(client, "/v1/completions", {"prompt": text, "use_cache": False}, tokens)
            console.print(f"{number}. {question}  ->{one_line(cached.text)}")
            yield Turn(number, cached, plain)
            text += f"{cached.text}\n\n"


def one_line(text: str) -> str:
    """A text with its line breaks shown."""
    return text.replace("\n", "\\n")


def verdict(turns: list[Turn], console: Console) -> int:
    """Says what was seen."""
    prompt = sum(turn.cached.prompt_tokens for turn in turns)
    reused = sum(turn.cached.reused_tokens for turn in turns)
    console.print(f"{reused} of {prompt} prompt tokens were reused ({reused / prompt:.0%}).")
    if different := [turn.number for turn in turns if not turn.same]:
        console.print(f"the texts of turns {different} differ with and without the cache: this is a fault")
        return 1
    console.print("every text was the same with and without the cache.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
