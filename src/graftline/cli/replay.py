"""`graftline replay`."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from graftline.cache.placement import parse_placement
from graftline.cache.sessions import SessionLimits
from graftline.cli.options import Json, Slots
from graftline.cli.output import data, note
from graftline.cli.traces import READING, Reading, note_empty, progress_bars
from graftline.replay.compositions import parse_composition
from graftline.replay.cost import CostModel
from graftline.replay.loops import Arrivals, Clients
from graftline.replay.report import as_json, save_json, tables
from graftline.replay.simulate import DEFAULT_CHUNK_TOKENS
from graftline.replay.sweep import Loop, SweepPlan, SweepResult, sweep

EXAMPLES = """Examples:

  graftline replay trace.jsonl.gz
  graftline replay trace.jsonl --components full+swa:4096+state --capacity 10 --capacity 25
  graftline replay trace.jsonl --slots full=20000 --loop arrivals --json
  graftline replay log.jsonl --plots plots --out result.json

A trace has one JSON object a line: Mooncake's hash_ids, runs of block ids, token ids, or requests as sent
to an OpenAI-compatible server. Capacities are percent of what an endless cache would hold."""

Several = Annotated[tuple[str, ...], Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class Cached:
    """What is replayed."""

    components: Several = ("full",)
    """full, swa[:TOKENS], chunk:TOKENS and state, joined by '+'; may be repeated."""
    policy: Several = ("lru",)
    """Order of eviction, such as lru, lfu, slru, cost, session or session(lfu); may be repeated."""
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
    sessions: bool = True
    """Whether the cache is told which session a request belongs to, where the trace names it."""
    infer_sessions: bool = True
    """Whether the cache finds out by itself whose turn a request is, where it is not told."""
    close_sessions: Annotated[bool, Parameter(negative=())] = False
    """Close each session after its last request of the trace, as its client could do."""
    session_ttl: float = SessionLimits().ttl_s
    """Seconds after which an idle session is closed, by the trace's arrival times."""
    checkpoints: str = "replay,end,answer,branch"
    """Which boundaries get windows and states: replay, end, answer, branch, grid:TOKENS; newest:COUNT."""


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


CACHED, PACE, SHOWN = Cached(), Pace(), Shown()


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
    plans = [_plan(text, cached, pace) for text in cached.components]
    paged = reading.open(trace)
    with progress_bars() as progress:
        results = [sweep(paged, plan, progress) for plan in plans]
    note_empty(paged)
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
        sessions=cached.sessions,
        infer_sessions=cached.infer_sessions,
        close_sessions=cached.close_sessions,
        session_ttl_s=cached.session_ttl,
        placement=parse_placement(cached.checkpoints),
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
