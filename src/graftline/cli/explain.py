"""`graftline explain`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from cyclopts import Parameter

from graftline.cli.options import Json, Slots
from graftline.cli.output import data, json_data, note, table
from graftline.cli.traces import READING, Reading, note_empty, progress_bars
from graftline.errors import ConfigError, GraftlineError
from graftline.replay.compositions import parse_composition
from graftline.replay.explain import explain as explain_requests
from graftline.replay.explain import story_json, worst
from graftline.replay.simulate import DEFAULT_CHUNK_TOKENS
from graftline.replay.sweep import Start, SweepPlan, sized
from graftline.replay.tokens import PagedTrace

EXAMPLES = """Examples:

  graftline explain trace.jsonl.gz --capacity 10 --request 1200
  graftline explain trace.jsonl.gz --components full+state --slots full=20000,state=64 --worst 5
  graftline explain --url http://127.0.0.1:8000 --request-id chatcmpl-5f0c

Requests of a trace are counted from 1. A running server tells of its latest requests."""
STRETCHES_SHOWN = 16


class ExplainError(GraftlineError):
    """A server could not be reached, or it does not tell."""


@dataclass(frozen=True, slots=True)
class Cached:
    """The cache through which the trace is replayed."""

    components: str = "full"
    """full, swa[:TOKENS], chunk:TOKENS and state, joined by '+'."""
    policy: str = "lru"
    """Order of eviction, such as lru, lfu, slru, cost, session or session(lfu)."""
    capacity: float = 10.0
    """Size of every pool, in percent of what an endless cache would hold in it."""
    slots: Slots = field(default_factory=dict)
    """Slots of all pools in place of percents: full=1024,state=64."""
    core: Literal["auto", "python", "rust"] = "auto"
    """Which tree core keeps the books."""
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    """Tokens of a prompt computed at once."""


@dataclass(frozen=True, slots=True)
class Which:
    """Which requests are explained."""

    request: Annotated[tuple[int, ...], Parameter(negative=())] = ()
    """Number of a request of the trace, from 1; may be repeated."""
    worst: int = 0
    """The requests that had to compute most again of what had come before: so many."""
    url: str = ""
    """Address of a running server, in place of a trace."""
    request_id: str = ""
    """Id of a request of that server."""
    api_key: str = ""
    """Key for that server."""


CACHED, WHICH = Cached(), Which()


def explain(
    trace: Path | None = None,
    *,
    which: Annotated[Which, Parameter(name="*")] = WHICH,
    cached: Annotated[Cached, Parameter(name="*")] = CACHED,
    reading: Annotated[Reading, Parameter(name="*")] = READING,
    json: Json = False,
) -> int:
    """Why a request reused what it did: votes, what was evicted when and for whom, what would have kept it.

    Args:
        trace: JSON lines, plain or gzipped; or none, with --url and --request-id.
    """
    if (trace is None) == (not which.url):
        raise ConfigError("give a trace, or --url and --request-id")
    if trace is None:
        stories = [ask_server(which)]
    else:
        paged = reading.open(trace)
        with progress_bars() as progress:
            stories = explain_trace(paged, which, cached, progress)
        note_empty(paged)
    if json:
        json_data(stories)
    else:
        for story in stories:
            show(story)
    return 0


def explain_trace(trace: PagedTrace, which: Which, cached: Cached, progress: Start) -> list[dict[str, Any]]:
    """Stories of requests of a trace, as JSON."""
    if bool(which.request) == bool(which.worst):
        raise ConfigError("give --request N or --worst K", hint="requests are counted from 1")
    if which.worst < 0 or any(number < 1 for number in which.request):
        raise ConfigError(f"--request {list(which.request)}, --worst {which.worst}: both count from 1")
    plan = SweepPlan(
        parse_composition(cached.components),
        capacities=(cached.capacity / 100,),
        slots=cached.slots,
        core=cached.core,
        chunk_tokens=cached.chunk_tokens,
    )
    slots = sized(trace, plan, progress)
    setup = plan.setup(slots, trace.page_tokens, cached.policy)
    numbers = [number - 1 for number in which.request]
    if which.worst:
        numbers = worst(trace, setup, which.worst, progress("looking for the worst", 0))
        if not numbers:
            note("no request computed again what had come before")
    stories = explain_requests(
        trace, setup, numbers, progress=progress("explaining", max(numbers, default=0))
    )
    return [story_json(story) for story in stories]


def ask_server(which: Which) -> dict[str, Any]:
    """The story of a server's request.

    Raises:
        ExplainError: the server could not be reached, or it does not tell.
        ConfigError: no request was named.
    """
    import httpx2  # noqa: PLC0415  an extra

    if not which.request_id:
        raise ConfigError("--url is given without --request-id")
    headers = {"Authorization": f"Bearer {which.api_key}"} if which.api_key else {}
    address = f"{which.url.rstrip('/')}/cache/explain/{quote(which.request_id, safe='')}"
    try:
        response = httpx2.get(address, headers=headers, timeout=30.0)
    except httpx2.HTTPError as error:
        raise ExplainError(
            f"{which.url} does not answer: {error}", hint="is 'graftline serve' running there?"
        ) from error
    if response.status_code != 200:
        raise ExplainError(f"the server answered with status {response.status_code}: {response.text[:300]}")
    found: dict[str, Any] = response.json()
    return found


def show(story: dict[str, Any]) -> None:
    """One story as text."""
    data(f"{named(story['request'])}: {story['prompt_tokens']:,} tokens, pages of {story['page_tokens']}")
    data(
        f"reused {story['reused_tokens']:,}; the tree knew {story['path_tokens']:,}, and once"
        f" {story['known_once_tokens']:,}; at most {story['limit_tokens']:,} may be reused"
    )
    if story.get("refused"):
        data("refused: the pools can never hold it")
    if story["limited_by"]:
        data(f"limited by {story['limited_by']}: {story['reason']}")
    for short in story.get("shortfalls", ()):
        data(short_line(short))
    if not story["history_is_complete"]:
        data("older values are forgotten: 'never stored' may mean 'long ago'")
    rows = [row for component in story["components"] for row in rows_of(component)]
    if rows:
        table(rows, ("component", "tokens", "value", "why"))
    for component in story["components"]:
        pool = f"; its pool has {component['pool_slots']:,} slots" if "pool_slots" in component else ""
        data(
            f"{component['component']} accepts {component['own_tokens']:,} by itself; without it the others"
            f" accept {component['without_tokens']:,}{pool}"
        )
    data("")


def short_line(short: dict[str, Any]) -> str:
    """What a tier below the device had and was not brought up, in words."""
    if short["reached_tokens"] is None:
        return f"the {short['tier']} may reach deeper: {short['reason']}"
    return (
        f"the {short['tier']} reached {short['reached_tokens']:,}, which cost {short['lost_tokens']:,} more:"
        f" {short['reason']}"
    )


def rows_of(component: dict[str, Any]) -> list[tuple[str, ...]]:
    """What became of a component's values, a row a stretch; many stretches are cut short in the middle."""
    stretches = component["stretches"]
    rows: list[tuple[str, ...]] = [
        (
            component["component"],
            f"{stretch['first_token']:,}-{stretch['end_token']:,}",
            stretch["value"],
            why(stretch),
        )
        for stretch in stretches
    ]
    if len(rows) <= STRETCHES_SHOWN:
        return rows
    cut = (component["component"], "...", f"{len(rows) - STRETCHES_SHOWN} more", "--json shows all")
    return [*rows[: STRETCHES_SHOWN // 2], cut, *rows[-STRETCHES_SHOWN // 2 :]]


def why(stretch: dict[str, Any]) -> str:
    """How a value came and went, in words."""
    parts = []
    if stretch["stored_for"]:
        parts.append(f"stored by {named(stretch['stored_for'])}")
    if stretch.get("last_used_by"):
        parts.append(f"last used by {named(stretch['last_used_by'])}")
    if stretch["removed_for"]:
        parts.append(f"left for {named(stretch['removed_for'])}")
    if "distance_slots" in stretch:
        parts.append(f"{stretch['distance_slots']:,} slots used since its last use")
    return "; ".join(parts)


def named(moment: dict[str, Any]) -> str:
    """A request in words."""
    session = f", session {moment['session']}" if moment["session"] not in ("", moment["request"]) else ""
    name = moment["request"] if moment["request"] != f"line {moment['number']}" else ""
    details = f"{name}{session}" if name else session.removeprefix(", ")
    return f"request {moment['number']} ({details})" if details else f"request {moment['number']}"
