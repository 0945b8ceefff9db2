"""Sweeps, tables, JSON, plots, and the command."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import pytest
from cyclopts import App

from graftline.cli import replay as command
from graftline.errors import ConfigError
from graftline.replay import FileTrace, PagedTrace, SweepPlan, parse_composition, sweep
from graftline.replay.loops import Arrivals, Clients
from graftline.replay.report import SCHEMA, MissingExtraError, as_json, limits, row, save_json, table
from graftline.replay.sweep import SweepResult
from replay.support import random_trace, write_lines


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    lines = [
        {
            "session_id": paged.request.session,
            "timestamp": 1000 * number,
            "input_length": paged.request.prompt_tokens,
            "block_size": 4,
            "hash_ids": paged.pages.tolist(),
        }
        for number, paged in enumerate(random_trace(2, 120))
    ]
    return write_lines(tmp_path / "trace.jsonl", *lines)


def swept(path: Path, text: str = "full", **options) -> SweepResult:
    return sweep(PagedTrace(FileTrace(path)), SweepPlan(parse_composition(text), chunk_tokens=4, **options))


@pytest.mark.parametrize("text", ["full", "full+swa:5", "full+state", "full+swa:5+state"])
@pytest.mark.parametrize("loop", [None, Arrivals(100.0), Clients(3)])
def test_no_point_passes_its_optimum(trace_path: Path, text: str, loop) -> None:
    result = swept(trace_path, text, loop=loop, running_max=4)
    assert len(result.points) == 5
    for point in result.points:
        assert point.optimum is not None
        assert point.figures.reused_tokens <= point.optimum.reused_tokens
        assert point.optimum.hit_rate <= result.prefix_hit_rate + 1e-9
        assert point.share_of_optimum is not None
        assert 0 <= point.share_of_optimum <= 1
        if loop is not None or "+" in text:
            assert point.optimum.kind == "bound"
    if text == "full":
        assert result.endless_hit_rate == pytest.approx(result.prefix_hit_rate)


def test_a_cache_as_large_as_the_working_set_is_endless(trace_path: Path) -> None:
    result = swept(trace_path, capacities=(1.0,))
    assert result.points[0].figures.hit_rate == pytest.approx(result.endless_hit_rate, abs=0.02)
    given = swept(trace_path, slots={"full": 2000})
    assert given.points[0].figures.hit_rate == result.endless_hit_rate
    assert given.points[0].capacity is None


def test_json_holds_everything_and_can_be_written(trace_path: Path, tmp_path: Path) -> None:
    result = swept(trace_path, "full+state", loop=Clients(2))
    save_json([result], tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    assert told == json.loads(json.dumps(as_json([result])))
    (one,) = told["replays"]
    assert (told["schema"], one["loop"]) == (SCHEMA, {"kind": "clients", "count": 2, "think_s": 0.0})
    point = one["points"][0]
    assert point["hit_rate"] == point["reused_tokens"] / point["prompt_tokens"]
    assert {"refusals", "turns", "pools", "first_token", "optimum", "share_of_optimum"} <= set(point)


def test_tables_say_what_is_only_a_bound(trace_path: Path) -> None:
    bound = swept(trace_path, "full+state", capacities=(0.2,))
    cells = row(bound.points[0])
    assert cells[4].startswith("<= ")
    assert cells[5].startswith(">= ")
    assert "state: " in limits(bound.points[0])
    without = swept(trace_path, capacities=(0.2,), with_optimum=False)
    assert row(without.points[0])[4:6] == ("-", "-")
    assert limits(without.points[0]) == "-"
    assert table(bound).row_count == 1


def test_plots_are_drawn(trace_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra 'report'")
    from graftline.replay.plots import save_plots  # noqa: PLC0415

    paths = save_plots([swept(trace_path), swept(trace_path, "full+state")], tmp_path / "plots")
    assert len(paths) == 6
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_missing_extras_are_named(trace_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graftline.replay.plots import save_plots  # noqa: PLC0415

    result = swept(trace_path, capacities=(0.5,))
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] in ("rich", "matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"graftline\[cli\]"):
        table(result)
    with pytest.raises(MissingExtraError, match=r"graftline\[report\]"):
        save_plots([result], tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"capacities": (0.0,)}, "capacity 0"),
        ({"capacities": (1.5,)}, "capacity 1.5"),
        ({"slots": {"swa": 3}}, "the components are full"),
    ],
)
def test_plans_that_cannot_work_are_refused(options: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SweepPlan(parse_composition("full"), **options)


def run(*arguments: object) -> None:
    app = App(result_action="return_value")
    app.command(command.replay)
    assert app(["replay", *map(str, arguments)], exit_on_error=False) == 0


def test_the_command_prints_json(trace_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(
        trace_path,
        "--json",
        "--components",
        "full",
        "--components",
        "full+state",
        "--capacity",
        "20",
        "--limit",
        "50",
    )
    told = json.loads(capsys.readouterr().out)
    assert [one["composition"] for one in told["replays"]] == ["full", "full+state"]
    assert [point["capacity"] for point in told["replays"][0]["points"]] == [0.2]
    assert told["replays"][0]["requests"] == 50


def test_the_command_prints_a_table_and_writes_files(
    trace_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(trace_path, "--slots", "full=60", "--loop", "arrivals", "--speed", "10", "--out", tmp_path / "o.json")
    assert "given" in capsys.readouterr().out
    assert json.loads((tmp_path / "o.json").read_text())["replays"][0]["loop"]["speed"] == 10.0
    run(trace_path, "--capacity", "50", "--loop", "clients", "--no-optimum")
    assert "50%" in capsys.readouterr().out


def test_the_command_tells_of_sessions_and_places_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, path = [], [1]
    for turn in range(12):  # a conversation, and a crowd of single prompts between its turns
        common = {"block_size": 4, "timestamp": 6000 * turn}
        lines.append({"session_id": "a", "input_length": 4 * len(path) + 1, "hash_ids": list(path), **common})
        path.append(100 + turn)
        for number in range(5):
            single = [1000 + 100 * turn + 10 * number + page for page in range(3)]
            common["timestamp"] += 1000
            lines.append({"input_length": 13, "hash_ids": single, **common})
    trace = write_lines(tmp_path / "crowd.jsonl", *lines)
    given = (trace, "--components", "full+state", "--policy", "session", "--json", "--slots")
    found = []
    deaf = ("--no-sessions", "--no-infer-sessions")
    for options in ((), ("--checkpoints", "branch"), deaf, ("--session-ttl", "0.5"), ("--no-sessions",)):
        run(*given, "full=24,state=20", *options)
        (one,) = json.loads(capsys.readouterr().out)["replays"]
        found.append((one["working_set_slots"]["state"], one["points"][0]["reused_tokens"]))
    assert found[1][0] < found[0][0]  # no path is left here, so no state is kept
    assert found[0][1] > found[2][1] == found[3][1]  # closed at once is as if nobody told
    assert found[4] == found[0]  # the conversation is recognised
    with pytest.raises(ConfigError, match="'all' is no kind of boundary"):
        run(trace, "--checkpoints", "all")


@pytest.mark.rule("S-1")
@pytest.mark.parametrize("loop", ["one", "arrivals"])
def test_the_command_closes_sessions_that_are_over(
    loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short conversations that are over keep no room from a long one that goes on."""
    lines, path = [], [1]
    for turn in range(8):
        lines.append({"session_id": "long", "input_length": 4 * len(path) + 1, "hash_ids": list(path)})
        path.append(100 + turn)
        for number in range(3):
            ids = [1000 + 100 * turn + 10 * number + page for page in range(3)]
            for end in (2, 3):
                session = f"{turn}.{number}"
                lines.append({"session_id": session, "input_length": 4 * end + 1, "hash_ids": ids[:end]})
    lines = [{"block_size": 4, "timestamp": 1000 * number, **line} for number, line in enumerate(lines)]
    trace, found = write_lines(tmp_path / "crowd.jsonl", *lines), []
    for options in ((), ("--close-sessions",)):
        run(trace, "--policy", "session", "--slots", "full=14", "--loop", loop, "--json", *options)
        (one,) = json.loads(capsys.readouterr().out)["replays"]
        found.append(one["points"][0]["reused_tokens"])
    assert found[0] < found[1]


def test_the_command_refuses_a_limit_below_nothing(trace_path: Path) -> None:
    with pytest.raises(ConfigError, match="--limit is -1"):
        command.replay(trace_path, reading=command.Reading(limit=-1))
