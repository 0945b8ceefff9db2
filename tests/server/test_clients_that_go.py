"""Clients that hang up, read slowly, or come in crowds: no slot stays behind, and nobody waits for them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_support import ENGINE, Live, chat_body, events, figures, load, pools_are_whole, running, until

from graftline.engine.api import SamplingParams
from graftline.key import as_tokens
from graftline.server.errors import ApiError
from graftline.server.job import Job, Prompt
from graftline.server.metrics import Metrics
from graftline.server.run import Run
from graftline.server.stream import PING

SMALL_BUFFERS = partial(httpx2.HTTPTransport, socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
LONG = {"prompt": "Go on and on", "max_tokens": 3000, "ignore_eos": True, "temperature": 0}


@pytest.fixture
def narrow(model: Path) -> Iterator[Live]:
    """A server that computes one request at a time and lets one wait."""
    with running(lambda: load(model, replace(ENGINE, max_running=1, max_waiting=1))) as live:
        yield live


def aborted(live: Live) -> float:
    return figures(live).get(("graftline_requests_total", frozenset({("outcome", "abort")})), 0)


def test_a_stream_that_is_left_is_aborted(live: Live) -> None:
    before = aborted(live)
    with (
        live.http() as http,
        http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response,
    ):
        for line in response.iter_lines():
            if line.startswith("data: "):
                break
    until(lambda: pools_are_whole(live), "pools whole")
    assert aborted(live) == before + 1
    assert not live.state.runs


@pytest.mark.parametrize("more", [{}, {"n": 3, "temperature": 1}, {"prompt": ["a", "b", "c"]}])
def test_a_client_that_hangs_up_before_the_answer(live: Live, more: dict[str, Any]) -> None:
    with live.http() as http, pytest.raises(httpx2.ReadTimeout):
        http.post("/v1/completions", json={**LONG, **more}, timeout=0.5)
    until(lambda: pools_are_whole(live), "pools whole")
    assert not live.state.runs


def test_one_that_hangs_up_while_it_waits(narrow: Live) -> None:
    with (
        narrow.http() as http,
        http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as first,
    ):
        lines = first.iter_lines()
        next(lines)
        with narrow.http() as other, pytest.raises(httpx2.ReadTimeout):
            other.post("/v1/completions", json=LONG, timeout=0.3)
        until(lambda: narrow.stats()["requests_waiting"] == 0, "the queue empty")
        assert narrow.stats()["requests_running"] == 1
    until(lambda: pools_are_whole(narrow), "pools whole")


def test_when_the_queue_is_full_the_next_one_is_told_when_to_come_back(narrow: Live) -> None:
    with (
        narrow.http() as http,
        http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as first,
    ):
        lines = first.iter_lines()  # kept: a generator that is dropped closes its stream
        next(lines)
        with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}):
            until(lambda: narrow.stats()["requests_waiting"] == 1, "one that waits")
            refused = narrow.post("/v1/chat/completions", chat_body(stream=True))
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) >= 1
            error = refused.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
    until(lambda: pools_are_whole(narrow), "pools whole")
    assert narrow.post("/v1/chat/completions", chat_body()).status_code == 200


def test_a_slow_reader_holds_up_nobody(model: Path) -> None:
    body = chat_body(stream=True, logprobs=True, top_logprobs=20, ignore_eos=True)
    with (
        running(lambda: load(model, ENGINE), send_buffer_bytes=8192) as live,
        live.http(transport=SMALL_BUFFERS()) as http,
        http.stream("POST", "/v1/chat/completions", json={**body, "max_tokens": 200}) as slow,
    ):
        chunks = slow.iter_raw(chunk_size=512)
        text = next(chunks)  # and reads no further
        until(lambda: pools_are_whole(live), "the engine done with it")
        assert len(live.state.runs) == 1, "the answer should not fit into the buffers on its way"
        assert live.post("/v1/chat/completions", chat_body()).status_code == 200
        text += b"".join(chunks)
        assert not live.state.runs
    parsed = events(text.decode())
    assert sum(len(chunk["choices"][0]["logprobs"]["content"]) for chunk in parsed) == 200


def test_silence_is_broken_by_comments(model: Path) -> None:
    config = replace(ENGINE, max_running=1)
    with running(lambda: load(model, config)) as live:
        object.__setattr__(live.state, "config", replace(live.state.config, ping_s=0.05))
        with (
            live.http() as http,
            http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as first,
        ):
            lines = first.iter_lines()
            next(lines)
            with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as waiting:
                assert next(waiting.iter_raw()).startswith(PING)


def test_many_come_and_go(live: Live) -> None:
    def visit(i: int) -> None:
        body = {**LONG, "prompt": f"Visitor {i}", "max_tokens": 400, "stream": True, "n": 1 + i % 2}
        with live.http() as http, http.stream("POST", "/v1/completions", json=body) as response:
            for count, _ in enumerate(response.iter_lines()):
                if count > 3 * i:
                    break

    visitors = [threading.Thread(target=visit, args=(i,)) for i in range(12)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    until(lambda: pools_are_whole(live), "pools whole")
    assert not live.state.runs


def test_a_run_that_is_closed_starts_nothing_more(live: Live) -> None:
    """The first token is there, the client goes, and only then is the token looked at."""
    backend = live.state.backend()
    job = Job(
        request_id="r",
        model="tiny",
        prompts=(Prompt(as_tokens([5, 6, 7])),),
        n=3,
        sampling=SamplingParams(max_tokens=3000, ignore_eos=True),
    )

    async def close_early() -> None:
        run = Run(job, backend.engine, backend.tokenizer, Metrics("m", "lru"), lambda _: None)
        run.start()
        while run._events._queue.empty():
            await asyncio.sleep(0)
        run.close()
        with pytest.raises(ApiError):
            async for _ in run.pieces():
                pass
        assert [choice.engine_id is None for choice in run.choices] == [False, True, True]

    asyncio.run(close_early())
    until(lambda: pools_are_whole(live), "pools whole")
