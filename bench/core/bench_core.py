"""Benchmarks of the tree cores: one table on the screen, the same figures as JSON.

    python -m bench.core.bench_core --json out/bench_core.json           everything
    python -m bench.core.bench_core --quick --cores rust

Times are medians in µs of the processor time of one thread. Compare figures of one run with each other: the
machine is printed, and a busy one is slower all the same.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from bench.core.border import border
from bench.core.conversation import conversation
from bench.core.eviction import eviction
from bench.core.load import Load
from bench.core.long_match import long_match
from bench.core.memory import memory
from bench.core.sessions import sessions
from bench.core.shapes import CORES, SHAPES

Row = dict[str, object]
PAGES = (1, 64)
FEW_SESSIONS = Load(sessions=200, active=200)  # what the Python core does in reasonable time


def conversation_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    for shape in SHAPES:
        for page in PAGES:
            for core in cores:
                yield conversation(core, shape, page, turns=40 if quick else 200, step=512)


def match_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    for shape in SHAPES[:2]:
        for page in PAGES:
            for nodes in (1, 256):
                for core in cores:
                    repeats = 20 if core == "python" else 50 if quick else 400
                    yield long_match(core, shape, page, 131_072, nodes, repeats)


def session_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    for shape in SHAPES:
        for page in PAGES:
            for core in cores:
                loads = [FEW_SESSIONS] if quick or core == "python" else [FEW_SESSIONS, Load()]
                for load in loads:
                    yield {"sessions": load.sessions, **sessions(core, shape, page, load)}


def eviction_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    for shape in (SHAPES[0], SHAPES[-1]):
        for leaves in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
            for core in cores:
                yield eviction(core, shape, 16, leaves, repeats=200)


def memory_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    for shape in (SHAPES[0], SHAPES[-1]):
        for node_tokens in (512, 64):
            for core in cores:
                yield memory(core, shape.name, 16, node_tokens, 1024 if quick else 8192)


def border_rows(cores: Sequence[str], quick: bool) -> Iterator[Row]:
    del quick
    for shape in (SHAPES[0], SHAPES[-1]):
        for core in cores:
            yield border(core, shape)


SECTIONS: dict[str, Callable[[Sequence[str], bool], Iterator[Row]]] = {
    "conversation": conversation_rows,
    "match": match_rows,
    "sessions": session_rows,
    "eviction": eviction_rows,
    "memory": memory_rows,
    "border": border_rows,
}


def print_table(title: str, rows: Sequence[Row]) -> None:
    columns = [name for name in rows[0] if not isinstance(rows[0][name], dict)]
    cells = [columns, *([str(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def machine() -> Row:
    model = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return {
        "processor": f"{model[0] if model else platform.processor()} x {len(model)}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": load,
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--cores", default=",".join(CORES), help="which, by comma")
    parser.add_argument("--parts", default=",".join(SECTIONS), help="which, by comma")
    parser.add_argument("--quick", action="store_true", help="fewer turns, sessions and nodes")
    arguments = parser.parse_args()
    cores = arguments.cores.split(",")
    result: dict[str, object] = {"machine": machine()}
    print("  ".join(f"{name} {value}" for name, value in machine().items()))
    for name in arguments.parts.split(","):
        rows = list(SECTIONS[name](cores, arguments.quick))
        result[name] = rows
        print_table(name, rows)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
