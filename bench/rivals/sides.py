"""The processes that measure, one a side, each in an environment of its own, and how they take turns."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rivals.cells import CORES, Cell, rounds

Figures = dict[str, float]


class Side:
    """One process; closed by leaving the `with`."""

    def __init__(self, name: str, python: str, root: Path, log: Path) -> None:
        self.name, self._log = name, log
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "bench.rivals.worker", name],
                cwd=root,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.versions: Mapping[str, str] = self._read()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def measure(self, cell: Cell, core: str) -> dict[str, Any]:
        """`{"figures": ...}` or `{"absent": why}`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"cell": cell.wire(), "core": core}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of '{self.name}' ended; {self._log} tells what it said")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(slots=True)
class Result:
    """What was found in one cell: medians over the rounds by side and core, or why there are none."""

    cell: Cell
    figures: dict[str, Figures] = field(default_factory=dict)
    samples: dict[str, list[Figures]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def measure_cell(cell: Cell, sides: tuple[Side, ...], quick: bool) -> Result:
    """All sides and cores in rounds; every other round goes the other way about, so that noise meets all."""
    result = Result(cell)
    for side, core in _turns(cell, sides, quick):
        name = f"{side.name} {core}"
        if name in result.absent:
            continue
        answer = side.measure(cell, core)
        if "absent" in answer:
            result.absent[name] = answer["absent"]
        else:
            result.samples.setdefault(name, []).append(answer["figures"])
    for name, samples in result.samples.items():
        medians = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
        result.figures[name] = medians
    return result


def _turns(cell: Cell, sides: tuple[Side, ...], quick: bool) -> Iterator[tuple[Side, str]]:
    most = {core: rounds(cell, core, quick) for core in CORES}
    for number in range(max(most.values())):
        order = sides if number % 2 == 0 else sides[::-1]
        yield from ((side, core) for core in CORES if number < most[core] for side in order)
