"""Orders that are told the future: with nothing told the least recently used, with everything the optimum."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from graftline.replay.compositions import parse_composition
from graftline.replay.forest import NEVER, passages
from graftline.replay.optimum import clairvoyant
from graftline.replay.simulate import Setup, simulate
from replay.support import PAGE, random_trace, request, write_lines

ROOT = Path(__file__).parents[2]
FULL = parse_composition("full")


@pytest.fixture(autouse=True)
def bench_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich", reason="benchmarks need the extra 'cli'")
    monkeypatch.syspath_prepend(str(ROOT))


def reused_pages(trace, slots: int, kind) -> int:
    from bench.replay.future import future_of  # noqa: PLC0415
    from bench.replay.told import replay_told  # noqa: PLC0415

    future = future_of(trace, passages(trace), slots)
    told = kind.tell(future, np.random.default_rng(3))
    setup = Setup(FULL, {"full": slots}, PAGE)
    return replay_told(trace, setup, future, kind.order(), told, closes=kind.closes) // PAGE


@pytest.mark.parametrize("slots", [9, 14])
@pytest.mark.parametrize("seed", range(4))
def test_with_nothing_told_it_is_lru_of_the_core(seed: int, slots: int) -> None:
    from bench.replay.kinds import Kind, nothing  # noqa: PLC0415
    from bench.replay.told import ToldLru  # noqa: PLC0415

    trace = random_trace(seed, 120)
    lru = simulate(trace, Setup(FULL, {"full": slots}, PAGE)).reused_tokens // PAGE
    assert reused_pages(trace, slots, Kind(ToldLru, nothing, "")) == lru


@pytest.mark.parametrize("slots", [9, 14])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_told_everything_reaches_the_optimum(seed: int, slots: int) -> None:
    from bench.replay.kinds import KINDS  # noqa: PLC0415

    trace = [
        request(list(map(int, paged.pages)), rest=1, session=paged.request.session)
        for paged in random_trace(seed, 120, always_rest=True)
    ]
    best = clairvoyant(passages(trace), slots)
    lru = simulate(trace, Setup(FULL, {"full": slots}, PAGE)).reused_tokens // PAGE
    assert best.exact
    assert lru <= reused_pages(trace, slots, KINDS["both"]) == best.reused_pages.sum()


@pytest.mark.parametrize("seed", range(2))
def test_nothing_told_reuses_more_than_the_optimum(seed: int) -> None:
    from bench.replay.kinds import KINDS  # noqa: PLC0415

    trace = random_trace(seed, 60)
    best = int(clairvoyant(passages(trace), 12).reused_pages.sum())
    found = {name: reused_pages(trace, 12, kind) for name, kind in KINDS.items()}
    assert max(found.values()) == found["both"] <= best
    assert min(found.values()) > 0


def test_who_is_told_that_a_value_never_returns_keeps_another() -> None:
    from bench.replay.kinds import KINDS  # noqa: PLC0415

    a, b, c = (request([page, page], rest=1, session=str(page)) for page in (1, 2, 3))
    trace = [a, b, c, a]  # room for two paths: the third one drives the first one out, or the second
    assert simulate(trace, Setup(FULL, {"full": 5}, PAGE)).reused_tokens == 0
    for name in ("whether", "whether, gittins", "ends", "both"):
        assert reused_pages(trace, 5, KINDS[name]) == 2, name


def test_what_there_is_to_tell() -> None:
    from bench.replay.future import GONE, future_of  # noqa: PLC0415

    trace = [
        request([1, 2], rest=1, session="a"),
        request([1, 3], rest=1, session="b"),
        request([1, 2, 4], rest=1, session="a"),
        request([9] * 8, rest=1, session="c"),  # too long to be served
        request([1, 2], session="d"),  # wants the first page alone
    ]
    future = future_of(trace, passages(trace), 5)
    runs = future.passages
    place = [(number, int(runs.end_page[run])) for number, run in zip(future.request, runs.run, strict=True)]
    told = dict(zip(place, zip(future.next_use.tolist(), future.exact.tolist(), strict=True), strict=True))
    assert told == {
        (0, 1): (1, 1),
        (0, 2): (2, 2),
        (1, 1): (2, 2),
        (1, 2): (NEVER, GONE),
        (2, 1): (4, 4),
        (2, 2): (NEVER, GONE),
        (2, 3): (NEVER, GONE),
        (4, 1): (NEVER, GONE),
        (4, 2): (NEVER, GONE),
    }
    known = {at for at, flag in zip(place, future.is_known, strict=True) if flag}
    assert known == {(1, 1), (2, 1), (2, 2), (2, 3), (4, 1), (4, 2)}
    over = {at for at, flag in zip(place, future.is_over, strict=True) if flag}
    assert over == {(1, 2), (2, 2), (2, 3)}


def test_sessions_that_nobody_names_are_inferred() -> None:
    from bench.replay.future import session_names  # noqa: PLC0415

    prompts = [[1, 2], [5], [1, 2, 3], [1, 2, 3, 4]]
    trace = [
        request(pages, rest=1, session=f"request {pages}") for pages in prompts
    ]  # its own name: the trace does not tell
    names = session_names(trace, [True] * 4)
    assert names[0] == names[2] == names[3] != names[1]


def test_knowledge_is_studied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.replay import bench_knowledge  # noqa: PLC0415

    lines = [
        {
            "session_id": paged.request.session,
            "input_length": paged.request.prompt_tokens,
            "block_size": PAGE,
            "hash_ids": paged.pages.tolist(),
        }
        for paged in random_trace(8, 50, depth=7)
        if paged.request.prompt_tokens
    ]
    (tmp_path / "small").mkdir()
    write_lines(tmp_path / "small" / "trace.jsonl.gz", *lines)
    options = ["--traces", tmp_path, "--only", "small/trace", "--only", "gone/trace"]
    options += ["--out", tmp_path / "out", "--docs", tmp_path / "docs"]
    monkeypatch.setattr(sys, "argv", ["bench_knowledge", *map(str, options)])
    bench_knowledge.main()
    told = json.loads((tmp_path / "out" / "knowledge.json").read_text())["results"]
    assert told["absent"] == ["gone/trace"]
    assert told["points"]
    assert all(point["gap"] > 0.05 for point in told["points"])
    assert all(max(point["closed"].values()) <= 1 for point in told["points"])
    page = (tmp_path / "docs" / "knowledge.md").read_text()
    assert page.count("| small ") == len(told["points"])
    assert f"| both | {np.median([p['closed']['both'] for p in told['points']]):.0%} |" in page
