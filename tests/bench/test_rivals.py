"""Our side of the comparison of cores, and its table; the other side needs an installation of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.core.instructions import ROOT
from bench.core.shapes import SHAPES
from bench.rivals import cells
from bench.rivals.cells import Cell
from bench.rivals.sides import Result, Side, measure_cell
from bench.rivals.table import COLUMNS, markdown, rows


def test_the_compositions_are_those_of_our_benchmarks() -> None:
    assert tuple(shape.name for shape in SHAPES) == cells.SHAPES


@pytest.mark.parametrize("part", cells.PARTS)
def test_every_composition_is_measured_on_both_pages(part: str) -> None:
    told = {(cell.shape, cell.page_tokens) for cell in cells.cells(part, quick=False)}
    expected = {(shape, page) for shape in cells.SHAPES for page in cells.PAGES}
    assert told == (set(cells.EVICTED_ON) if part == "eviction" else expected)


def test_one_side_answers_from_a_process_of_its_own(tmp_path: Path) -> None:
    with Side("ours", sys.executable, ROOT, tmp_path / "log") as ours:
        assert "graftline" in ours.versions
        result = measure_cell(Cell("conversation", "FULL+MAMBA", 16, 4), (ours,), quick=True)
        assert set(result.figures) == {"ours python", "ours rust"}
        assert all(figures["turn_us"] > 0 for figures in result.figures.values())
        failed = measure_cell(Cell("conversation", "unknown", 16, 4), (ours,), quick=True)
        assert set(failed.absent) == {"ours python", "ours rust"}


def test_a_ratio_tells_how_many_times_better_ours_is() -> None:
    faster = {"turn_us": 10.0, "turn_late_us": 20.0}
    slower = {"turn_us": 40.0, "turn_late_us": 5.0}
    cell = Cell("conversation", "FULL", 1, 200)
    all_turns, late_turns = rows([Result(cell, {"ours rust": faster, "sglang rust": slower})])
    place = COLUMNS.index("Rust: ratio")
    assert (all_turns[place], all_turns[-1]) == ("4.00", "")
    assert (late_turns[place], late_turns[-1]) == ("0.25", "worse")
    load = Cell("sessions", "FULL", 1, 2000)
    more = {"ops_per_s": 10.0, "freed_per_asked": 1.0, "hit_rate": 0.5}
    less = {"ops_per_s": 40.0, "freed_per_asked": 2.0, "hit_rate": 0.25}
    speed, freed, hits = rows([Result(load, {"ours rust": more, "sglang rust": less})])
    assert [row[place] for row in (speed, freed, hits)] == ["0.25", "2.00", "2.00"]
    assert [row[-1] for row in (speed, freed, hits)] == ["worse", "", ""]
    assert "no memory" in markdown([Result(cell, absent={"sglang rust": "no memory"})])
