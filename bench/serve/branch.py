"""A shared prefix of 1,500 tokens, then different questions: what each request reuses.

The place where the questions part lies inside of the first prompt, where nothing ended: a server that keeps
states at the ends of prompts only has none there. Each question is asked with the cache on and off, in
alternating order, and the tokens of the answers are compared.

Other servers' counts stand beside ours; `published.py` says where they come from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpx2
import numpy as np
from bench.harness import Report, console, show
from bench.serve.client import Reply, complete
from bench.serve.models import bench_model, random_tokens
from bench.serve.options import shared_options
from bench.serve.published import BRANCHES
from demo.talking import Server
from rich.console import Console

SHARED_TOKENS = 1500
QUESTION_TOKENS = 100
GENERATED_TOKENS = 4
FAMILIES = ("qwen3_5", "gemma3", "inkling")


@dataclass(frozen=True, slots=True)
class Asked:
    """One question with the cache on and off."""

    on: Reply
    off: Reply

    @property
    def same(self) -> bool:
        """Whether both answers have the same tokens."""
        return self.on.tokens == self.off.tokens


@dataclass(frozen=True, slots=True)
class Case:
    """One server setting: a page size, and whether the client marks the end of the shared prefix."""

    page_tokens: int
    marked: bool

    @property
    def name(self) -> str:
        """For tables."""
        return f"page {self.page_tokens}" + (", marked" if self.marked else "")


def main() -> int:
    """Runs the benchmark; 1 when a text differed with and without the cache."""
    options = arguments()
    out = console()
    report = Report("serve-branch", options.seed, {"preset": options.preset, "questions": options.questions})
    report.results["published"] = [asdict(published) for published in BRANCHES]
    out.print(report.machine.line())
    same = True
    for family in options.families:
        asked = measure(family, options, out)
        show_family(family, asked, options.questions, out)
        same = same and all(one.same for many in asked.values() for one in many)
        report.results[family] = {case.name: [asdict(one) for one in many] for case, many in asked.items()}
    out.print(f"written: {report.save(options.out)}")
    return 0 if same else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = shared_options(__doc__, FAMILIES)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--page-sizes", type=int, nargs="+", default=[16, 4], metavar="TOKENS")
    parser.add_argument(
        "--marks",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also with the end of the shared prefix marked by the client",
    )
    return parser.parse_args()


def measure(family: str, options: argparse.Namespace, out: Console) -> dict[Case, list[Asked]]:
    """All cases of one model; one server a page size."""
    model = bench_model(family, options.preset, options.out / "bench-models")
    flags = ("--threads", "1", "--max-model-len", "8192", "--log-level", "warning")
    asked: dict[Case, list[Asked]] = {}
    for pages in options.page_sizes:
        with (
            Server(model, out, *flags, "--page-size", str(pages)) as server,
            httpx2.Client(base_url=server.url, timeout=600) as client,
        ):
            for marked in (False, True) if options.marks else (False,):
                case = Case(pages, marked)
                asked[case] = list(ask_all(client, options, case))
    return asked


def ask_all(client: httpx2.Client, options: argparse.Namespace, case: Case) -> Iterator[Asked]:
    """Asks all questions about a prefix of the case's own."""
    rng = np.random.default_rng([options.seed, case.page_tokens, case.marked])
    shared = random_tokens(rng, SHARED_TOKENS, options.preset)
    fields: dict[str, Any] = {"cache_marks": [SHARED_TOKENS]} if case.marked else {}
    for number in range(options.questions):
        prompt = shared + random_tokens(rng, QUESTION_TOKENS, options.preset)
        replies: dict[bool, Reply] = {}
        for use_cache in (True, False) if number % 2 else (False, True):
            replies[use_cache] = complete(client, prompt, GENERATED_TOKENS, use_cache=use_cache, **fields)
        yield Asked(replies[True], replies[False])


def show_family(family: str, asked: dict[Case, list[Asked]], questions: int, out: Console) -> None:
    """Reused tokens by request: ours, and what was published of others."""
    rows: list[tuple[object, ...]] = []
    for case, many in asked.items():
        later = many[2:] or many
        texts = "same" if all(one.same for one in many) else "DIFFER"
        on_ms, off_ms = (mean_ms([getattr(one, way).ttft_s for one in later]) for way in ("on", "off"))
        counts = [one.on.reused_tokens for one in many]
        rows.append((case.name, SHARED_TOKENS, *counts, on_ms, off_ms, texts))
    for other in BRANCHES:
        if other.family == family:
            counts = [other.reused_tokens[min(i, len(other.reused_tokens) - 1)] for i in range(questions)]
            rows.append((other.server, other.shared_tokens, *counts, "", "", ""))
    columns = (
        *("", "shared", *(f"req. {i}" for i in range(1, questions + 1))),
        *("TTFT on, ms", "TTFT off, ms", "texts"),
    )
    show(
        f"{family}: tokens reused of each request; others' of 2026-11; mean times from the third request on",
        columns,
        rows,
        out,
    )


def mean_ms(seconds: Sequence[float]) -> float:
    """Mean in milliseconds."""
    return sum(seconds) / len(seconds) * 1e3


if __name__ == "__main__":
    sys.exit(main())
