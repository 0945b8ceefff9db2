"""Requests of a trace, explained: votes, what was evicted for whom, and what would have kept it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App

from graftline.cache.explain import is_missing
from graftline.cli import explain as command
from graftline.errors import ConfigError
from graftline.plan import Match
from graftline.replay import FileTrace, PagedTrace, Setup, parse_composition, simulate
from graftline.replay.explain import explain, worst
from graftline.replay.forest import passages
from graftline.replay.tokens import KEY_TOKENS, PagedRequest
from graftline.replay.uses import Uses, covered
from replay.support import PAGE, random_trace, write_lines

SLOTS = {"full": 16, "swa": 12, "state": 5}


def slots_of(text: str, **given: int) -> dict[str, int]:
    return {name: given.get(name, SLOTS[name]) for name, _ in parse_composition(text).rules}


def setup_of(text: str, **given: int) -> Setup:
    return Setup(parse_composition(text), slots_of(text, **given), PAGE, chunk_tokens=PAGE)


def boundaries(trace: list[PagedRequest], setup: Setup) -> list[int]:
    found: list[int] = []

    def observe(paged: PagedRequest, match: Match | None) -> None:
        found.append(match.boundary_tokens // KEY_TOKENS if match else 0)

    simulate(trace, setup, observe=observe)
    return found


@pytest.mark.parametrize("text", ["full", "full+state", "full+swa:5", "full+swa:5+state"])
def test_it_tells_the_boundary_that_the_replay_has(text: str) -> None:
    trace = random_trace(7, 60)
    setup = setup_of(text)
    stories = explain(trace, setup, range(60))  # type: ignore[arg-type]
    assert [story.explanation.boundary_pages for story in stories] == boundaries(trace, setup)
    for story in stories:
        told = story.explanation
        assert told.boundary_pages <= told.path_pages <= told.known_pages <= told.limit_pages
        assert told.known_pages <= story.passed_pages
        assert told.is_complete
        for component in told.components:
            assert component.own_pages >= told.boundary_pages
            ends = [stretch.end_page for stretch in component.stretches]
            assert ends[-1:] == ([told.known_pages] if told.known_pages else [])
        full = told.components[0]
        held = sum(s.end_page - s.first_page for s in full.stretches if s.state == "held")
        assert held == told.path_pages


def test_what_would_have_kept_a_page_keeps_it_and_little_less_does_not() -> None:
    """The distance is that of the least recently used order: with as many slots, the page is there."""
    enough = short = 0
    for seed in range(6):
        trace = random_trace(seed, 60, depth=7, branches=4)
        own = 2 + max(len(paged.answer) for paged in trace)  # what a running request computes besides
        found: dict[int, list[int]] = {}
        for story in explain(trace, setup_of("full", full=20), range(60)):  # type: ignore[arg-type]
            for component in story.explanation.components:
                for stretch in filter(is_missing, component.stretches):
                    slots = story.last_uses["full", stretch.first_page].distance_slots
                    assert slots + own > 20  # else it would not have left
                    for size in (slots + own, max(20, slots - 4)):
                        if size not in found:
                            found[size] = boundaries(trace, setup_of("full", full=size))
                    assert found[slots + own][story.number] >= stretch.end_page
                    enough += 1
                    short += found[max(20, slots - 4)][story.number] < stretch.end_page
    assert enough > 20
    assert short > enough // 3


def test_who_drove_a_page_out_and_who_used_it_last() -> None:
    trace = random_trace(3, 80, depth=7)
    setup = setup_of("full+state")
    seen = 0
    for story in explain(trace, setup, range(80)):  # type: ignore[arg-type]
        for component in story.explanation.components:
            for stretch in filter(is_missing, component.stretches):
                fate = stretch.fate
                assert fate is not None
                assert fate.stored is not None
                assert fate.removed is not None
                last = story.last_uses[component.component, stretch.first_page]
                assert fate.stored.number <= last.by.number <= fate.removed.number <= story.number
                seen += 1
    assert seen > 20


def test_the_worst_lost_most() -> None:
    trace = random_trace(9, 80, depth=8)
    setup = setup_of("full")
    found = worst(trace, setup, 3)  # type: ignore[arg-type]
    lost = passages(trace).endless_pages() - np.array(boundaries(trace, setup))
    assert [lost[number] for number in found] == sorted(lost, reverse=True)[:3]
    assert worst(trace, setup_of("full", full=2000), 3) == []  # type: ignore[arg-type]
    stories = explain(trace, setup, found)  # type: ignore[arg-type]
    assert [story.lost_pages for story in stories] == [lost[number] for number in found]


def test_a_request_that_is_refused_is_told_so() -> None:
    trace = random_trace(1, 40, depth=9)
    largest = max(range(40), key=lambda number: trace[number].occupied_pages)
    slots = trace[largest].occupied_pages - 1
    (story,) = explain(trace, setup_of("full", full=slots), [largest])  # type: ignore[arg-type]
    assert story.refused


def test_a_request_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no request 41, the trace has 40"):
        explain(random_trace(1, 40), setup_of("full"), [40])  # type: ignore[arg-type]


def test_covered_counts_each_number_once() -> None:
    random = np.random.default_rng(2)
    for _ in range(100):
        starts = random.integers(0, 40, size=random.integers(0, 12))
        intervals = np.stack([starts, starts + random.integers(0, 9, size=len(starts))], axis=1)
        numbers = {number for first, end in intervals.tolist() for number in range(first, end)}
        assert covered(intervals) == len(numbers)


def test_distances_count_different_pages() -> None:
    trace = random_trace(6, 50, depth=6)
    ahead = passages(trace)
    uses = Uses(ahead)
    paths = [[*map(int, paged.pages), *map(int, paged.answer)] for paged in trace]
    for number, path in enumerate(paths):
        uses.note(number, "full", 0, len(path))
    for number, path in enumerate(paths):
        for page in range(len(path)):
            prefix = path[: page + 1]
            users = [n for n in range(number) if paths[n][: page + 1] == prefix]
            found = uses.distance("full", page, number)
            if not users:
                assert found is None
                continue
            since = {tuple(p[: end + 1]) for p in paths[users[-1] : number] for end in range(len(p))}
            assert found is not None
            assert (found.request, found.slots) == (users[-1], len(since))


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    lines = [
        {
            "session_id": paged.request.session,
            "input_length": paged.request.prompt_tokens,
            "block_size": PAGE,
            "hash_ids": paged.pages.tolist(),
        }
        for paged in random_trace(5, 120, depth=7)
        if paged.request.prompt_tokens
    ]
    return write_lines(tmp_path / "trace.jsonl", *lines)


def run(*arguments: object) -> None:
    app = App(result_action="return_value")
    app.command(command.explain)
    assert app(["explain", *map(str, arguments)], exit_on_error=False) == 0


def test_the_command_tells_json_and_text(trace_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(trace_path, "--worst", "2", "--capacity", "15", "--json")
    worst_two = json.loads(capsys.readouterr().out)
    assert [story["schema"] for story in worst_two] == ["graftline.explain/1"] * 2
    assert worst_two[0]["lost_tokens"] >= worst_two[1]["lost_tokens"] > 0
    gone = [s for s in worst_two[0]["components"][0]["stretches"] if s["value"] == "evicted"]
    assert gone[0]["distance_slots"] > 0
    number = worst_two[0]["request"]["number"]
    run(trace_path, "--request", number, "--capacity", "15")
    text = capsys.readouterr().out
    assert text.startswith(f"request {number}")
    assert "slots used since its last use" in text
    run(trace_path, "--request", number, "--capacity", "15", "--json")
    assert json.loads(capsys.readouterr().out)[0] == worst_two[0]


def test_many_stretches_are_cut_short() -> None:
    stretch = {"value": "held", "stored_for": None, "removed_for": None}
    stretches = [{"first_token": n, "end_token": n + 1, **stretch} for n in range(40)]
    rows = command.rows_of({"component": "swa", "stretches": stretches})
    assert len(rows) == command.STRETCHES_SHOWN + 1
    assert ("swa", "...", "24 more", "--json shows all") in rows


class Server(BaseHTTPRequestHandler):
    """Tells one story."""

    stories: dict[str, object] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        known = self.path in self.stories
        body = json.dumps(self.stories.get(self.path, {"error": "unknown request"})).encode()
        self.send_response(200 if known and self.headers["Authorization"] == "Bearer k" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    listening = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_server_is_asked(server: str, trace_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(trace_path, "--request", "30", "--json")
    (story,) = json.loads(capsys.readouterr().out)
    Server.stories = {"/cache/explain/a%2Fb": story}
    run("--url", server, "--request-id", "a/b", "--api-key", "k", "--json")
    assert json.loads(capsys.readouterr().out) == [story]
    run("--url", server, "--request-id", "a/b", "--api-key", "k")
    assert capsys.readouterr().out.startswith("request 30")
    with pytest.raises(command.ExplainError, match=r"status 404: .*unknown request"):
        run("--url", server, "--request-id", "other", "--api-key", "k")


def test_a_server_that_is_not_there_is_told(server: str) -> None:
    with pytest.raises(command.ExplainError, match="does not answer"):
        run("--url", "http://127.0.0.1:1", "--request-id", "x")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("TRACE",), "--request N or --worst K"),
        (("TRACE", "--request", "1", "--worst", "1"), "--request N or --worst K"),
        (("TRACE", "--request", "0"), "count from 1"),
        (("TRACE", "--url", "http://x", "--request", "1"), "a trace, or --url"),
        (("--url", "http://x"), "without --request-id"),
        ((), "a trace, or --url"),
    ],
)
def test_questions_without_an_answer_are_refused(trace_path: Path, options: tuple, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(*(trace_path if option == "TRACE" else option for option in options))


def test_requests_of_a_real_file(trace_path: Path) -> None:
    paged = PagedTrace(FileTrace(trace_path))
    list(paged)
    setup = Setup(parse_composition("full"), {"full": 20}, paged.page_tokens)
    (story,) = explain(paged, setup, [100])
    assert story.explanation.request.request == "line 101"
