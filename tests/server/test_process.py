"""`graftline serve` as a process of its own: what it prints, and how signals end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import IO

import httpx2
import pytest
from server_support import PATIENCE_S, chat_body, events

from graftline.cache.cores import has_rust

FLAGS = ("--threads", "1", "--device-memory", "32MiB", "--max-model-len", "4096", "--device", "cpu")
CORE = "core rust" if has_rust() else "core python"
LONG = {"prompt": "Go on", "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "stream": True}


@dataclass(frozen=True)
class Process:
    """A server process, and its lines on stderr as they come."""

    popen: subprocess.Popen[str]
    lines: Queue[str]

    def until_ready(self) -> tuple[list[str], str]:
        """What it says at start, and the address from the last line."""
        said = []
        while True:
            line = self.lines.get(timeout=PATIENCE_S)
            said.append(line)
            if "ready: http" in line:
                return said, line.split("ready: ")[1].split('"')[0]

    def end(self) -> int:
        return self.popen.wait(PATIENCE_S)


def _read(stream: IO[str], lines: Queue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))


@contextmanager
def serve(model: Path, *flags: str, port: str = "0") -> Iterator[Process]:
    command = [sys.executable, "-m", "graftline", "serve", str(model), "--port", port, *FLAGS, *flags]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as popen:
        lines: Queue[str] = Queue()
        assert popen.stderr is not None
        reader = threading.Thread(target=_read, args=(popen.stderr, lines))
        reader.start()
        try:
            yield Process(popen, lines)
        finally:
            popen.kill()
            reader.join()


def test_it_says_what_it_serves_and_drains_on_sigterm(model: Path) -> None:
    with serve(model) as process:
        said, url = process.until_ready()
        text = "\n".join(said)
        for part in (
            *("4 layers", "composition full", "page 16 tokens", "pool full", "bytes a token"),
            *("pool state", "bytes a state", "eviction policy lru", CORE, "no key file"),
        ):
            assert part in text, part
        with httpx2.Client(base_url=url, timeout=PATIENCE_S) as http:
            body = {**LONG, "max_tokens": 300}
            with http.stream("POST", "/v1/completions", json=body) as response:
                chunks = response.iter_text()
                answer = next(chunks)
                process.popen.send_signal(signal.SIGTERM)
                answer += "".join(chunks)
        assert events(answer)[-1]["choices"][0]["finish_reason"] == "length"
        assert process.end() == 0
        assert process.popen.stdout is not None
        assert process.popen.stdout.read() == ""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 1), (signal.SIGINT, 130)])
def test_a_second_signal_stops_it(model: Path, number: signal.Signals, status: int) -> None:
    with serve(model, "--log-json", "--log-level", "warning") as process:
        said, url = process.until_ready()
        assert json.loads(said[-1])["message"] == f"ready: {url}"
        with (
            httpx2.Client(base_url=url, timeout=PATIENCE_S) as http,
            http.stream("POST", "/v1/completions", json=LONG) as response,
        ):
            chunks = response.iter_text()
            text = next(chunks)
            process.popen.send_signal(number)
            while http.get("/ready").status_code == 200:
                pass
            process.popen.send_signal(number)
            text += "".join(chunks)
        assert '"unavailable_error"' in text
        assert process.end() == status


def test_sigint_when_nothing_runs(model: Path) -> None:
    with serve(model) as process:
        process.until_ready()
        process.popen.send_signal(signal.SIGINT)
        assert process.end() == 130


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with serve(tmp_path / "absent") as process:
        assert process.end() == 1
        said = "\n".join(process.lines.get(timeout=PATIENCE_S) for _ in range(2))
        assert "absent" in said


def test_a_port_that_is_taken(model: Path) -> None:
    with serve(model) as first:
        _, url = first.until_ready()
        with serve(model, port=url.rsplit(":", 1)[1]) as second:
            assert second.end() == 2
            assert "cannot listen" in second.lines.get(timeout=PATIENCE_S)
        with httpx2.Client(base_url=url, timeout=PATIENCE_S) as http:
            assert http.post("/v1/chat/completions", json=chat_body(model=None)).status_code == 200
