"""Our two cores beside SGLang's two, in one run: one table and one file of JSON.

    python -m bench.rivals                 about 12 minutes on an idle machine
    python -m bench.rivals --quick         about 2
    python -m bench.rivals --docs docs/benchmarks.md

Each side runs in a process of its own; SGLang's lies in an environment of its own, which the first run makes
(`install.py`). Times are processor time of one thread. The sides take turns, so that a busy machine disturbs
all of them; ratios hold better than the figures themselves.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from bench.harness import ROOT, Report, command, console, show
from bench.rivals.cells import PARTS, cells
from bench.rivals.install import rival_python
from bench.rivals.sides import Result, Side, measure_cell
from bench.rivals.table import COLUMNS, markdown, rows

BEGIN, END = "<!-- rivals: begin -->", "<!-- rivals: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer turns, sessions, leaves and rounds")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, by comma")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the figures")
    parser.add_argument("--docs", type=Path, help="page whose part between the marks is written anew")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out / "rivals-logs", ignore_errors=True)
    report = Report("bench-rivals", seed=0, settings={"quick": arguments.quick, "parts": arguments.parts})
    logs = arguments.out / "rivals-logs"
    with (
        Side("ours", sys.executable, ROOT, logs / "ours.log") as ours,
        Side("sglang", str(rival_python(ROOT)), ROOT, logs / "sglang.log") as theirs,
    ):
        results = list(_measure((ours, theirs), arguments.parts.split(","), arguments.quick))
    versions = {**theirs.versions, **ours.versions}
    report.results = {"versions": versions, "cells": [asdict(result) for result in results]}
    path = report.save(arguments.out)
    out = console()
    out.width = 200
    show(f"{versions}  {report.machine.line()}", COLUMNS, [*rows(results)], out)
    print(f"{path}: all figures")
    if arguments.docs:
        line = f"`{command()}`: {_told(versions)}; {report.machine.line()}.{_floor(results)}"
        _write(arguments.docs, results, line)


def _measure(sides: tuple[Side, ...], parts: list[str], quick: bool) -> list[Result]:
    results = []
    for part in parts:
        for cell in cells(part, quick):
            results.append(measure_cell(cell, sides, quick))
            print(f"{part} {cell.shape} {cell.page_tokens} {cell.count}", file=sys.stderr, flush=True)
    return results


def _floor(results: list[Result]) -> str:
    found = [result.figures["ours rust"]["memcmp_us"] for result in results if result.cell.part == "match"]
    return f" `memcmp` of the tokens of a match takes {statistics.median(found):.1f} µs." if found else ""


def _told(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _write(page: Path, results: list[Result], line: str) -> None:
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{line}\n\n{markdown(results)}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
