"""A server's life: loading, a load that fails, an engine that dies, draining; and the log."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from server_support import ENGINE, PATIENCE_S, SERVER, Live, chat_body, events, load, running, until

from graftline.engine.api import EngineStats, PoolUse
from graftline.server.figures_line import line
from graftline.server.logs import JsonFormatter
from graftline.server.state import Backend, Phase


def test_while_the_model_is_loaded_the_server_says_so(model: Path) -> None:
    go = threading.Event()

    def slow() -> Backend:
        assert go.wait(PATIENCE_S)
        return load(model, ENGINE)

    with running(slow, wait_ready=False) as live:
        for path in ("/health", "/ready", "/ping", "/v1/models", "/server_info"):
            response = live.get(path)
            assert response.status_code == 503, path
            assert response.json()["error"]["code"] == "loading"
            assert response.headers["Retry-After"]
        assert live.post("/v1/chat/completions", chat_body()).status_code == 503
        assert live.get("/metrics").status_code == 200
        go.set()
        until(lambda: live.get("/ready").status_code == 200, "ready")
        assert live.get("/health").json() == {"status": "ok"}
        assert live.post("/v1/chat/completions", chat_body()).status_code == 200


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    with running(lambda: load(tmp_path, ENGINE), wait_ready=False) as live:
        until(lambda: live.state.phase is Phase.FAILED, "failure")
        assert live.state.failure is not None
        assert live.get("/health").json()["error"]["code"] == "failed"


def test_draining_finishes_what_runs_and_takes_nothing_new(model: Path) -> None:
    body = {"prompt": "Go on", "max_tokens": 300, "ignore_eos": True, "temperature": 0, "stream": True}
    patient = replace(SERVER, drain_s=PATIENCE_S)
    with running(lambda: load(model, ENGINE), patient) as live, live.http() as http:
        with http.stream("POST", "/v1/completions", json=body) as response:
            chunks = response.iter_text()
            text = next(chunks)
            live.server.stop()
            until(lambda: live.state.phase is Phase.DRAINING, "draining")
            assert live.get("/ready").json()["error"]["code"] == "draining"
            assert live.get("/health").status_code == 200
            refused = live.post("/v1/chat/completions", chat_body())
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            text += "".join(chunks)
        assert events(text)[-1]["choices"][0]["finish_reason"] == "length"
        assert live.server.cut_requests == 0


def test_the_second_signal_ends_what_runs(model: Path) -> None:
    body = {"prompt": "Go on", "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "stream": True}
    with running(lambda: load(model, ENGINE)) as live, live.http() as http:
        with http.stream("POST", "/v1/completions", json=body) as response:
            chunks = response.iter_text()
            text = next(chunks)
            live.server.stop()
            live.server.stop()
            text += "".join(chunks)
        last = json.loads(text.rstrip().splitlines()[-1].removeprefix("data: "))
        assert last["error"]["type"] == "unavailable_error"
        assert "[DONE]" not in text
        assert live.server.cut_requests == 1


def test_the_bound_on_draining(model: Path) -> None:
    body = {"prompt": "Go on", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
    failed = []

    def ask(live: Live) -> None:
        failed.append(live.post("/v1/completions", body))

    with running(lambda: load(model, ENGINE), replace(SERVER, drain_s=0.2)) as live:
        asking = threading.Thread(target=ask, args=(live,))
        asking.start()
        until(lambda: live.stats()["requests_running"] == 1, "a running request")
        live.server.stop()
        asking.join(PATIENCE_S)
    assert [response.status_code for response in failed] == [503]
    assert failed[0].json()["error"]["code"] == "stopping"


def test_an_engine_that_dies_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(lambda: load(model, ENGINE)) as live:
        engine = live.state.backend().engine

        def broken(*_: object) -> None:
            raise RuntimeError("the accelerator is gone: secret detail")

        monkeypatch.setattr(engine._runner, "step", broken)  # type: ignore[attr-defined]
        failed = live.post("/v1/chat/completions", chat_body(), headers={"X-Request-Id": "r-1"})
        assert failed.status_code == 500
        assert "r-1" in failed.json()["error"]["message"]
        assert "secret" not in failed.text
        assert failed.json()["error"]["type"] == "server_error"
        until(lambda: live.get("/health").status_code == 503, "bad health")
        assert live.get("/health").json()["error"]["code"] == "engine_failed"
        later = live.post("/v1/chat/completions", chat_body(stream=True))
        assert (later.status_code, later.json()["error"]["code"]) == (503, "engine_closed")


def test_a_fault_of_the_server_shows_no_trace(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(lambda: load(model, ENGINE)) as live:

        def broken(*_: object) -> None:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(live.state, "check_model", broken)
        failed = live.post("/v1/chat/completions", chat_body(), headers={"X-Request-Id": "r-2"})
        assert failed.status_code == 500
        assert failed.headers["X-Request-Id"] == "r-2"
        assert failed.json()["error"] == {
            "message": "the server failed; look for request r-2 in its log",
            "type": "server_error",
            "param": None,
            "code": "internal_error",
        }


def test_bodies_above_the_limit(model: Path) -> None:
    with (
        running(lambda: load(model, ENGINE), replace(SERVER, max_body_bytes=2000)) as live,
        live.http() as http,
    ):
        announced = http.post("/v1/completions", json={"prompt": "x" * 3000})

        def in_parts() -> object:
            for _ in range(30):
                yield b'{"prompt": "' + b"x" * 100

        growing = http.post(
            "/v1/completions", content=in_parts(), headers={"Content-Type": "application/json"}
        )
        for response in (announced, growing):
            assert response.status_code == 413
            assert response.json()["error"]["code"] == "request_too_large"
            assert response.json()["error"]["type"] == "invalid_request_error"
        assert http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 200


def snapshot(prompt: int, reused: int, generated: int, lost: int) -> EngineStats:
    return EngineStats(
        running=1,
        waiting=2,
        prompt_tokens=prompt,
        reused_tokens=reused,
        computed_tokens=prompt - reused,
        generated_tokens=generated,
        preemptions=0,
        requests={},
        lost_tokens={("state", "evicted"): lost},
        skipped_checkpoints=0,
        evicted_slots={},
        pools=(PoolUse("full", 100, 75, 20, 5, 5, 1024),),
    )


def test_the_line_of_figures() -> None:
    made = line(snapshot(100, 0, 10, 0), snapshot(300, 162, 30, 8), 10.0)
    assert not made.idle
    assert made.text == (
        "Avg prompt throughput: 3.8 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 1 reqs,"
        " Waiting: 2 reqs, slots used: full 25%, reused 81% (device 81%), lost 4% to state"
    )


def test_an_interval_without_anything_is_idle() -> None:
    calm = replace(snapshot(5, 0, 5, 0), running=0, waiting=0)
    assert line(calm, calm, 10.0).idle


def test_log_lines_as_json() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = logging.LogRecord(
            "graftline.x", logging.ERROR, "f", 1, "it %s", ("failed",), (ValueError, error, None)
        )
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["level"], fields["logger"], fields["message"]) == ("error", "graftline.x", "it failed")
    assert "ValueError: broken" in fields["trace"]


def test_figures_are_logged_in_intervals(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "graftline.server")
    config = replace(SERVER, log_interval_s=0.05, log_prompts=True)
    with running(lambda: load(model, ENGINE), config) as live:
        live.post("/v1/chat/completions", chat_body("a word to find", session_id="s-9", unknown_field=1))
        live.post("/v1/chat/completions", chat_body(unknown_field=1))
        until(lambda: any("Avg prompt throughput" in text for text in caplog.messages), "a line of figures")
    assert any("session s-9" in text and "reused 0" in text for text in caplog.messages)
    assert any("a word to find" in text for text in caplog.messages)
    assert len([text for text in caplog.messages if "unknown_field" in text]) == 1


def test_prompts_are_not_logged_by_default(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running(lambda: load(model, ENGINE)) as live:
        live.post("/v1/chat/completions", chat_body("a word to find"))
        live.post("/v1/completions", {"prompt": "another word to find"})
    assert not any("word to find" in text for text in caplog.messages)
