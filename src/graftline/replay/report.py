"""Results as JSON and as tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.errors import GraftlineError
from graftline.replay.sweep import SweepPoint, SweepResult

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = "graftline.replay/1"


class MissingExtraError(GraftlineError):
    """A package that only some reports need is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"'{package}' is not installed", hint=f"pip install 'graftline[{extra}]', or ask for JSON alone"
        )


def as_json(results: Sequence[SweepResult]) -> dict[str, Any]:
    """Everything, ready for `json.dumps`; `schema` names this form, and changes when a field does."""
    return {"schema": SCHEMA, "replays": [_result(result) for result in results]}


def _result(result: SweepResult) -> dict[str, Any]:
    loop = "one at a time" if result.loop is None else type(result.loop).__name__.lower()
    return {
        "trace": result.trace,
        "composition": result.composition,
        "page_tokens": result.page_tokens,
        "requests": result.requests,
        "prompt_tokens": result.prompt_tokens,
        "working_set_slots": dict(result.working_set),
        "endless_hit_rate": result.endless_hit_rate,
        "prefix_hit_rate": result.prefix_hit_rate,
        "loop": {"kind": loop, **(asdict(result.loop) if result.loop else {})},
        "cost": asdict(result.cost),
        "points": [_point(point) for point in result.points],
    }


def _point(point: SweepPoint) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "capacity": point.capacity,
        "slots": dict(point.slots),
        "hit_rate": point.figures.hit_rate,
        "share_of_optimum": point.share_of_optimum,
        "optimum": asdict(point.optimum) if point.optimum else None,
        **asdict(point.figures),
    }


def save_json(results: Sequence[SweepResult], path: Path) -> None:
    """Writes the JSON to a file."""
    path.write_text(json.dumps(as_json(results), indent=1) + "\n", encoding="utf-8")


def tables(results: Iterable[SweepResult]) -> list[Table]:
    """One table a result.

    Raises:
        MissingExtraError: rich is not installed.
    """
    return [table(result) for result in results]


COLUMNS = (
    *("policy", "capacity", "slots", "hit rate", "optimum", "of optimum", "refused"),
    *("TTFT p50 s", "TTFT p99 s", "limited most by"),
)


def table(result: SweepResult) -> Table:
    """Runs of one composition, a row each."""
    try:
        from rich.table import Table  # noqa: PLC0415  an extra
    except ImportError as error:
        raise MissingExtraError("rich", "cli") from error
    title = (
        f"{result.trace}, {result.composition}: {result.requests:,} requests,"
        f" {result.prompt_tokens:,} prompt tokens, pages of {result.page_tokens};"
        f" endless cache {result.endless_hit_rate:.1%}"
    )
    shown = Table(title=title, title_justify="left")
    for place, name in enumerate(COLUMNS):
        shown.add_column(name, justify="left" if place in (0, 2, 9) else "right")
    for point in result.points:
        shown.add_row(*row(point))
    return shown


def row(point: SweepPoint) -> tuple[str, ...]:
    """One run's cells, as in `COLUMNS`; `<=` marks an optimum that is only a bound."""
    figures, best, share = point.figures, point.optimum, point.share_of_optimum
    mark = "<= " if best and best.kind == "bound" else ""
    least = ">= " if mark else ""
    return (
        point.policy,
        "given" if point.capacity is None else f"{point.capacity:.0%}",
        ", ".join(f"{name} {slots:,}" for name, slots in point.slots.items()),
        f"{figures.hit_rate:.1%}",
        f"{mark}{best.hit_rate:.1%}" if best else "-",
        f"{least}{share:.1%}" if share is not None else "-",
        f"{figures.refused:,}",
        f"{figures.first_token.p50_s:.3f}",
        f"{figures.first_token.p99_s:.3f}",
        limits(point),
    )


def limits(point: SweepPoint) -> str:
    """The dearest refusal, and its share of the prompt tokens."""
    refusals = point.figures.refusals
    if not refusals:
        return "-"
    dearest = refusals[0]
    share = dearest.lost_tokens / point.figures.prompt_tokens
    return f"{dearest.component}: {dearest.reason}, {share:.1%} of tokens"
