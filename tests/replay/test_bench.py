"""The benchmark's cells are computed once, and its pages say what the cells say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from graftline.errors import ConfigError
from replay.support import PAGE, random_trace, write_lines

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bench_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="benchmarks need the extra 'cli'")
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    lines = [
        {
            "session_id": paged.request.session,
            "input_length": paged.request.prompt_tokens,
            "block_size": PAGE,
            "hash_ids": paged.pages.tolist(),
        }
        for paged in random_trace(8, 100, depth=7)
        if paged.request.prompt_tokens
    ]
    folder = tmp_path / "small"
    folder.mkdir()
    return write_lines(folder / "trace.jsonl.gz", *lines)


def test_a_cell_is_computed_once_and_again_when_asked(tmp_path: Path) -> None:
    from bench.replay.cells import Cells  # noqa: PLC0415

    made: list[str] = []

    def make(name: str) -> dict[str, str]:
        made.append(name)
        return {"name": name}

    cells = Cells(tmp_path / "cells")
    for _ in range(2):
        assert cells.get("a/b+c", "lru", lambda: make("one")) == {"name": "one"}
    assert cells.get("a b+c", "lru", lambda: make("two")) == {"name": "two"}  # another name, another file
    assert made == ["one", "two"]
    assert (cells.computed, cells.older) == (2, 0)
    older = Cells(tmp_path / "cells", code="of yesterday")
    assert older.get("a/b+c", "lru", lambda: make("three")) == {"name": "one"}
    assert (older.computed, older.older) == (0, 1)
    again = Cells(tmp_path / "cells", again=("lru",))
    assert again.get("a/b+c", "lru", lambda: make("four")) == {"name": "four"}
    assert again.get("a/b+c", "cost", lambda: make("five")) == {"name": "four"}
    assert not list((tmp_path / "cells").glob("*.part"))


def test_rows_stay_below_the_optimum_and_are_kept(trace_path: Path, tmp_path: Path) -> None:
    from bench.replay.cells import Cells, TraceCells, rows_of  # noqa: PLC0415

    cells = Cells(tmp_path / "cells")
    wanted = ("full+state", (0.1, 0.5), ("lru", "session"))
    rows = list(rows_of(TraceCells(trace_path, 0, cells, "auto"), "small/trace", *wanted))
    assert [(row.capacity, row.policy) for row in rows] == [
        (0.1, "lru"),
        (0.1, "session"),
        (0.5, "lru"),
        (0.5, "session"),
    ]
    for row in rows:
        assert row.hit_rate <= row.best_rate
        assert row.lru_rate <= row.best_rate
        assert row.best_kind == "bound"
        assert row.pool_bytes > 0
        assert row.policy != "lru" or row.closed in (0.0, None)
    trace_path.unlink()  # nothing is computed any more, so nothing is read
    kept = Cells(tmp_path / "cells")
    assert list(rows_of(TraceCells(trace_path, 0, kept, "auto"), "small/trace", *wanted)) == rows
    assert kept.computed == 0


def test_unknown_policies_are_left_out_and_named() -> None:
    from bench.replay.bench_replay import known  # noqa: PLC0415

    assert known(["session", "guess", "lru"]) == (("lru", "session"), ["guess"])


def test_pages_and_plots(trace_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra 'report'")
    from bench.replay import bench_replay  # noqa: PLC0415

    options = ["--traces", trace_path.parents[1], "--only", "small/trace", "--only", "gone/trace"]
    options += ["--compositions", "full", "--compositions", "full+state", "--policies", "session"]
    options += ["--out", tmp_path / "out", "--docs", tmp_path / "docs"]
    monkeypatch.setattr(sys, "argv", ["bench_replay", *map(str, options)])
    bench_replay.main()
    told = json.loads((tmp_path / "out" / "replay.json").read_text())["results"]
    assert told["absent"] == ["gone/trace"]
    assert len(told["rows"]) == 2 * 5 * 2
    overview = (tmp_path / "docs" / "README.md").read_text()
    assert "Not there, left out: gone/trace." in overview
    best = max(row["hit_rate"] for row in told["rows"] if row["composition"] == "full")
    assert f"**{best:.1%}**" in overview
    page = (tmp_path / "docs" / "small.md").read_text()
    assert page.count("| `session` |") == 10
    assert (tmp_path / "docs" / "small.svg").read_text().startswith("<?xml")


def test_a_verdict_names_what_is_lost() -> None:
    from bench.replay.cells import Row  # noqa: PLC0415
    from bench.replay.pages import summary, verdict  # noqa: PLC0415

    def row(policy: str, capacity: float, rate: float) -> Row:
        return Row("t/trace", "full", capacity, policy, rate, 0.3, 0.5, "exact", 0.9, 1, 0.0, 0.0)

    rows = [row("lru", 0.1, 0.3), row("new", 0.1, 0.38), row("lru", 0.5, 0.3), row("new", 0.5, 0.29)]
    text = verdict(rows)
    assert "Highest mean: `new`." in text
    assert "Behind another policy at 1; the widest: t `full` 50% (1.0 behind `lru`)." in text
    assert "closed at 2; the widest" in text
    assert "| `new` | 33.5% | 67.0% | 1 of 2 | 1.0 | 2 | 0 | 18% |" in summary(rows)


def test_checkpoints_are_studied(trace_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.replay import bench_checkpoints  # noqa: PLC0415

    options = ["--traces", trace_path.parents[1], "--only", "small/trace"]
    options += ["--out", tmp_path / "out", "--docs", tmp_path / "docs"]
    monkeypatch.setattr(sys, "argv", ["bench_checkpoints", *map(str, options)])
    bench_checkpoints.main()
    page = (tmp_path / "docs" / "checkpoints.md").read_text()
    assert page.count("| `answer,branch` |") == len(bench_checkpoints.POLICIES)
    told = json.loads((tmp_path / "out" / "checkpoints.json").read_text())["results"]["small/trace"]
    credit = told["credit"]
    assert sum(kind["hit_tokens"] for kind in credit["by_kind"].values()) == credit["reused_tokens"] > 0


def test_inferred_sessions_are_studied(
    trace_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.replay import bench_inference  # noqa: PLC0415

    options = ["--traces", trace_path.parents[1], "--only", "small/trace"]
    options += ["--out", tmp_path / "out", "--docs", tmp_path / "docs"]
    monkeypatch.setattr(sys, "argv", ["bench_inference", *map(str, options)])
    bench_inference.main()
    page = (tmp_path / "docs" / "inference.md").read_text()
    assert page.count("| inferred |") == len(bench_inference.POLICIES)
    rates = json.loads((tmp_path / "out" / "inference.json").read_text())["results"]["small/trace"]
    assert len(rates) == 3 * len(bench_inference.POLICIES) * len(bench_inference.CAPACITIES)
    assert all(0 <= rate <= 1 for *_, rate in rates)


def test_a_broken_trace_stops_with_its_name(tmp_path: Path) -> None:
    from bench.replay.cells import Cells, TraceCells  # noqa: PLC0415

    bad = write_lines(tmp_path / "trace.jsonl.gz", {"input_length": 3, "hash_ids": [1], "block_size": 0})
    with pytest.raises((ConfigError, ValueError), match="block_size"):
        TraceCells(bad, 0, Cells(tmp_path / "cells"), "auto").base("full")
