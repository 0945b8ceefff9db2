"""`graftline replay`."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from graftline.cli.options import Json, Slots
from graftline.cli.output import data, note
from graftline.errors import ConfigError
from graftline.replay.compositions import parse_composition
from graftline.replay.cost import CostModel
from graftline.replay.formats import FileTrace
from graftline.replay.loops import Arrivals, Clients
from graftline.replay.report import MissingExtraError, as_json, save_json, tables
from graftline.replay.simulate import DEFAULT_CHUNK_TOKENS, Progress
from graftline.replay.sweep import Loop, Start, SweepPlan, SweepResult, sweep, unseen
from graftline.replay.tokens import PagedTrace

EXAMPLES = """Examples:

  graftline replay trace.jsonl.gz
  graftline replay trace.jsonl --components full+swa:4096+state --capacity 10 --capacity 25
  graftline replay trace.jsonl --slots full=20000 --loop arrivals --json
  graftline replay log.jsonl --plots plots --out result.json

A trace has one JSON object a line: Mooncake's hash_ids, runs of block ids, token ids, or requests as sent
to an OpenAI-compatible server. Capacities are percent of what an endless cache would hold."""

Switch = Annotated[bool, Parameter(negative=())]
Several = Annotated[tuple[str, ...], Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the trace is read."""

    format: str = "auto"
    """mooncake, runs, tokens, openai, sessions, session-runs, parts, lengths; auto asks the first line."""
    limit: int = 0
    """Stop after so many requests; 0 for all."""
    page_size: int = 0
    """Tokens a page; 0 takes the trace's block, or 16 for text and token ids."""
    unnamed_answers: Switch = False
    """Let answers take pages even where the trace does not name their content."""


@dataclass(frozen=True, slots=True)
class Cached:
    """What is replayed."""

    components: Several = ("full",)
    """full, swa[:TOKENS], chunk:TOKENS and state, joined by '+'; may be repeated."""
    policy: Several = ("lru",)
    """Order of eviction; may be repeated."""
    capacity: Annotated[tuple[float, ...], Parameter(negative=())] = (1.0, 5.0, 10.0, 25.0, 50.0)
    """Size of every pool, in percent of what an endless cache would hold in it; may be repeated."""
    slots: Slots = field(default_factory=dict)
    """Slots of all pools in place of percents: full=1024,state=64."""
    core: Literal["auto", "python", "rust"] = "auto"
    """Which tree core keeps the books."""
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    """Tokens of a prompt computed at once."""
    optimum: bool = True
    """Whether the clairvoyant optimum is found."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When requests come, and how long they take."""

    loop: Literal["one", "arrivals", "clients"] = "one"
    """One request at a time, by arrival times, or clients who wait for each answer."""
    speed: float = 1.0
    """How many times as fast as in the trace requests arrive."""
    clients: int = 16
    """Clients of a closed loop."""
    think: float = 0.0
    """Seconds between an answer and the next request of its session, where the trace does not tell."""
    max_num_seqs: int = 64
    """Most requests at once."""
    prefill_speed: float = 8000.0
    """Prompt tokens computed a second."""
    decode_speed: float = 50.0
    """Tokens that one request generates a second."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Where the result goes."""

    out: Path | None = None
    """Write the JSON to this file too."""
    plots: Path | None = None
    """Draw plots into this folder."""


READING, CACHED, PACE, SHOWN = Reading(), Cached(), Pace(), Shown()


def replay(
    trace: Path,
    *,
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    cached: Annotated[Cached, Parameter(name="*")] = CACHED,
    pace: Annotated[Pace, Parameter(name="*")] = PACE,
    shown: Annotated[Shown, Parameter(name="*")] = SHOWN,
    json: Json = False,
) -> int:
    """Replays a trace of requests through the real cache without a model, beside the best possible.

    Args:
        trace: JSON lines, plain or gzipped.
    """
    if reading.limit < 0:
        raise ConfigError(f"--limit is {reading.limit}, it must not be negative")
    plans = [_plan(text, cached, pace) for text in cached.components]
    source = FileTrace(trace, reading.format, requests_max=reading.limit)
    paged = PagedTrace(source, reading.page_size, unnamed_answers=reading.unnamed_answers)
    with _progress() as progress:
        results = [sweep(paged, plan, progress) for plan in plans]
    if source.empty_prompts:
        note(f"left out {source.empty_prompts:,} requests without a token")
    _show(results, shown, as_json_text=json)
    return 0


def _plan(text: str, cached: Cached, pace: Pace) -> SweepPlan:
    cost = CostModel(prefill_tokens_per_s=pace.prefill_speed, decode_tokens_per_s=pace.decode_speed)
    return SweepPlan(
        composition=parse_composition(text),
        policies=cached.policy,
        capacities=[percent / 100 for percent in cached.capacity],
        slots=cached.slots,
        loop=_loop(pace),
        running_max=pace.max_num_seqs,
        cost=cost,
        core=cached.core,
        chunk_tokens=cached.chunk_tokens,
        with_optimum=cached.optimum,
    )


def _loop(pace: Pace) -> Loop:
    if pace.loop == "arrivals":
        return Arrivals(pace.speed)
    if pace.loop == "clients":
        return Clients(pace.clients, pace.think)
    return None


def _show(results: list[SweepResult], shown: Shown, *, as_json_text: bool) -> None:
    if shown.out is not None:
        save_json(results, shown.out)
    if shown.plots is not None:
        from graftline.replay.plots import save_plots  # noqa: PLC0415  needs an extra

        for path in save_plots(results, shown.plots):
            note(f"wrote {path}")
    if as_json_text:
        data(json_module.dumps(as_json(results), indent=1))
        return
    made = tables(results)
    from rich.console import Console  # noqa: PLC0415  there, or `tables` would have said so

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    for table in made:
        console.print(table)


@contextmanager
def _progress() -> Iterator[Start]:
    """A bar on stderr, a line a run; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield unseen
        return
    try:
        from rich.console import Console  # noqa: PLC0415  an extra
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as Bars  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("rich", "cli") from error
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def start(name: str, requests: int) -> Progress:
            for task in bars.task_ids:
                bars.stop_task(task)
            task = bars.add_task(name, total=requests or None)
            return lambda count: bars.advance(task, count)

        yield start
