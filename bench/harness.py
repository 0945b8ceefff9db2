"""What all benchmarks share: the machine they ran on, statistics of samples, tables, and JSON.

A result says everything that is needed to run it again: command, seed, commit, versions, machine. The
load is told too: figures taken beside other work are to be compared within one run only.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SCHEMA = "graftline.bench/1"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and with what a benchmark ran; `load` is the mean number of running processes at its start."""

    cpu: str
    cores: int
    load: float
    python: str
    versions: Mapping[str, str]
    commit: str

    def line(self) -> str:
        """All of it in one line."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{self.cpu}, {self.cores} cores, load {self.load:.1f}, Python {self.python}, {versions},"
            f" commit {self.commit}"
        )


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of samples, in the samples' unit. With few samples, p99 is the largest one."""

    samples: int
    mean: float
    median: float
    p99: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Of at least one sample."""
        ordered = sorted(samples)
        rank = min(len(ordered) - 1, round(0.99 * (len(ordered) - 1) + 0.499))
        return cls(len(ordered), statistics.fmean(ordered), statistics.median(ordered), ordered[rank])


def this_machine() -> Machine:
    """The machine line's content."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        load=round(os.getloadavg()[0], 2),
        python=platform.python_version(),
        versions={name: _version(name) for name in ("torch", "transformers", "graftline")},
        commit=_commit(),
    )


@dataclass(slots=True)
class Report:
    """One benchmark's results, as they come; saved at the end.

    Attributes:
        name: of the benchmark; also of its file.
        seed: of everything random in it.
        settings: what else was chosen.
        results: whatever can be written as JSON, under names.
    """

    name: str
    seed: int
    settings: Mapping[str, Any]
    machine: Machine = field(default_factory=this_machine)
    results: dict[str, Any] = field(default_factory=dict)

    def save(self, out: Path) -> Path:
        """Writes `NAME.json` into the folder `out`, which is made if need be."""
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{self.name}.json"
        content = {
            "schema": SCHEMA,
            "benchmark": self.name,
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": command(),
            "seed": self.seed,
            "settings": dict(self.settings),
            "machine": asdict(self.machine),
            "results": self.results,
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def command() -> str:
    """The command that runs this again, from the root of the repository."""
    return shlex.join(["python", "-m", _module(), *sys.argv[1:]])


def console() -> Console:
    """For tables: as wide as the terminal, or wide enough when there is none."""
    return Console(width=None if sys.stdout.isatty() else 150, highlight=False)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], out: Console) -> None:
    """Prints a table; the first column is a name, the others are figures."""
    table = Table()
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    out.print(f"\n{title}")
    out.print(table)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _commit() -> str:
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _module() -> str:
    path = Path(sys.argv[0]).resolve()
    if not path.is_relative_to(ROOT):
        return path.stem
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
