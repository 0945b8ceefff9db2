"""Draws what the tiers are worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

COLOURS = {"L1": "#888888", "L1+L2": "#4477aa", "L1+L2+L3": "#228833"}


def plot(results: Mapping[str, Any], path: Path) -> Path:
    """Effective input tokens a second, and the hit rate over the turns, for each model."""
    mpl.use("Agg")
    figure, rows = plt.subplots(len(results), 2, figsize=(10, 3 * len(results)), squeeze=False)
    for (speed, rate), (family, result) in zip(rows, results.items(), strict=True):
        for run in result["runs"]:
            colour = COLOURS[run["tier"]]
            bar = speed.bar(run["tier"], run["tokens_per_s"], color=colour)
            speed.bar_label(bar, fmt="{:,.0f}")
            turns, rates = zip(*run["hit_rate_by_turn"], strict=True)
            rate.plot(turns, rates, color=colour, label=run["tier"])
        speed.set_title(f"{family}: effective input tokens/s")
        rate.axhline(
            result["endless_hit_rate"], color="black", linestyle=":", label="endless device, all turns"
        )
        rate.set(title="hit rate by turn", xlabel="turn", ylim=(0, 1))
        rate.legend(loc="center right", fontsize="small")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path
