"""Plots of results. Needs matplotlib (extra `report`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from graftline.replay.report import MissingExtraError
from graftline.replay.sweep import SweepPoint, SweepResult
from graftline.replay.tally import TURNS_SHOWN

Axes: TypeAlias = Any
"""`matplotlib.axes.Axes`; matplotlib is not loaded before something is drawn."""

WIDTH_IN, HEIGHT_IN = 6.4, 4.2


def save_plots(results: Sequence[SweepResult], folder: Path, *, ending: str = "png") -> list[Path]:
    """Draws three plots of each result into a folder, which is made if need be.

    Args:
        results: what is drawn.
        folder: where to.
        ending: `png`, `svg` or `pdf`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error
    folder.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, Callable[[Axes, SweepResult], None]] = {
        "capacity": draw_capacity,
        "turns": draw_turns,
        "limits": draw_limits,
    }
    paths = []
    for result in results:
        for name, draw in drawings.items():
            figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
            FigureCanvasAgg(figure)
            axes = figure.add_subplot()
            draw(axes, result)
            axes.set_title(f"{result.trace}, {result.composition}", fontsize=10)
            axes.grid(alpha=0.3)
            path = folder / f"{file_name(result)}-{name}.{ending}"
            figure.savefig(path, dpi=150)
            paths.append(path)
    return paths


def file_name(result: SweepResult) -> str:
    """Trace and composition in letters that every file system takes."""
    text = f"{result.trace}-{result.composition}"
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in text)


def draw_capacity(axes: Axes, result: SweepResult) -> None:
    """Hit rate over capacity: a line a policy, the optimum above them, an endless cache as a level."""
    for policy, points in by_policy(result).items():
        axes.plot(positions(points), [point.figures.hit_rate for point in points], marker="o", label=policy)
    best = [point for point in next(iter(by_policy(result).values()), []) if point.optimum]
    if best:
        kinds = {point.optimum.kind for point in best if point.optimum}
        label = "optimum" if kinds == {"exact"} else "bound on the optimum"
        rates = [point.optimum.hit_rate for point in best if point.optimum]
        axes.plot(positions(best), rates, color="black", marker="^", label=label)
    axes.axhline(result.endless_hit_rate, color="grey", linestyle=":", label="endless cache")
    axes.set_xlabel("slots of each pool, % of an endless cache's")
    axes.set_ylabel("hit rate")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)


def draw_turns(axes: Axes, result: SweepResult) -> None:
    """Hit rate over the turn of the session, a line a run."""
    for point in result.points:
        turns = [turn for turn in point.figures.turns if turn.prompt_tokens]
        rates = [turn.reused_tokens / turn.prompt_tokens for turn in turns]
        axes.plot([turn.turn for turn in turns], rates, marker=".", label=label_of(point))
    axes.set_xlabel(f"requests of the session before this one ({TURNS_SHOWN}: or more)")
    axes.set_ylabel("hit rate")
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)


def draw_limits(axes: Axes, result: SweepResult) -> None:
    """What each component cost, by reason: known tokens that were not reused, stacked, a bar a run."""
    reasons = sorted({(r.component, r.reason) for point in result.points for r in point.figures.refusals})
    bottom = [0.0] * len(result.points)
    for reason in reasons:
        shares = [lost_share(point, reason) for point in result.points]
        axes.bar(range(len(shares)), shares, bottom=bottom, label=f"{reason[0]}: {reason[1]}")
        bottom = [low + share for low, share in zip(bottom, shares, strict=True)]
    axes.set_xticks(range(len(result.points)), [label_of(point) for point in result.points], fontsize=8)
    axes.set_ylabel("known tokens not reused, share of prompt tokens")
    if reasons:
        axes.legend(fontsize=8)
    else:
        axes.text(0.5, 0.5, "nothing known was refused", ha="center", transform=axes.transAxes)


def lost_share(point: SweepPoint, reason: tuple[str, str]) -> float:
    """Share of the prompt tokens that one component cost for one reason."""
    lost = sum(r.lost_tokens for r in point.figures.refusals if (r.component, r.reason) == reason)
    return lost / max(1, point.figures.prompt_tokens)


def by_policy(result: SweepResult) -> dict[str, list[SweepPoint]]:
    """Runs of each policy, in order."""
    found: dict[str, list[SweepPoint]] = {}
    for point in result.points:
        found.setdefault(point.policy, []).append(point)
    return found


def positions(points: Sequence[SweepPoint]) -> list[float]:
    """Where the points stand on the axis of capacities; given slots stand at 100."""
    return [100.0 * (1.0 if point.capacity is None else point.capacity) for point in points]


def label_of(point: SweepPoint) -> str:
    """A run in a few letters."""
    return point.policy if point.capacity is None else f"{point.policy} {point.capacity:.0%}"
