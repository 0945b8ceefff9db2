"""`graftline serve` as a user starts it: a process of its own, questions to it, what it tells of itself."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import httpx2

PATIENCE_S = 240  # something stuck shows as a failed wait
FLAGS = (
    *("--port", "0", "--threads", "1", "--device", "cpu", "--max-model-len", "4096"),
    *("--device-memory", "32MiB", "--log-interval", "0"),
)
TIERED = ("--host-memory", "64MiB", "--prefetch-policy", "wait")
WORDS = ("a", "page", "of", "tree", "holds", "what", "many", "prompts", "share", "and", "no", "more", "than")
PROMPT_WORDS = 200
ANSWER_TOKENS = 8
TRIES_MAX = 60
Truth = Callable[[str], str]
"""The answer to a prompt, computed without any cache."""


def prompt(number: int) -> str:
    """A text of some hundred tokens; no two of them begin alike."""
    draw = random.Random(number)
    return f"{number} " + " ".join(draw.choice(WORDS) for _ in range(PROMPT_WORDS))


def until(holds: Callable[[], Any], what: str) -> None:
    """Asks again and again until it holds: another process tells nobody of it."""
    pause = threading.Event()
    for _ in range(PATIENCE_S * 20):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError(f"never came: {what}")


@dataclass(frozen=True)
class Answer:
    """One answer, and what it says of the cache."""

    text: str
    request_id: str
    tiers: dict[str, int]
    cache: dict[str, Any]


class Graftline:
    """One server process. It is killed when the process of the tests ends."""

    def __init__(self, model: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "graftline", "serve", str(model), *FLAGS, *flags]
        watched = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self.lines: list[str] = []
        self._url = ""
        self._told = threading.Event()
        self._process = subprocess.Popen(
            [*watched, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stderr is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr,))
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append(line.rstrip("\n"))
            if "ready: http" in line:
                self._url = line.rstrip("\n").split("ready: ")[1]
                self._told.set()
        self._told.set()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        """Its address, as soon as it is ready."""
        assert self._told.wait(PATIENCE_S), self.log
        assert self._url, self.log
        return self._url

    def kill(self) -> None:
        """As `kill -9`, and waits until it is gone. May be called twice."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def terminate(self) -> int:
        """As `kill`; the exit status."""
        self.signal()
        return self.end()

    def signal(self) -> None:
        """Tells it to stop."""
        self._process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Waits until it has ended; the exit status."""
        return self._process.wait(PATIENCE_S)

    # -- over HTTP ---------------------------------------------------------------------------------

    def post(self, path: str, body: Any = None, **settings: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, timeout=PATIENCE_S, **settings)

    def ask(self, text: str, **more: Any) -> Answer:
        body = {"prompt": text, "max_tokens": ANSWER_TOKENS, "temperature": 0, "ignore_eos": True, **more}
        response = self.post("/v1/completions", body)
        assert response.status_code == 200, response.text
        answer = response.json()
        tiers = answer["usage"]["prompt_tokens_details"]["cached_tokens_by_tier"]
        request_id = response.headers["x-request-id"]
        return Answer(answer["choices"][0]["text"], request_id, tiers, answer["cache"])

    def stats(self) -> Any:
        return httpx2.get(f"{self.url}/cache/stats", timeout=PATIENCE_S).json()

    def store(self) -> Any:
        """Figures of its only store."""
        (store,) = self.stats()["stores"]
        return store

    def faults(self) -> set[str]:
        """Why calls of its store failed."""
        return {fault["reason"] for fault in self.store()["faults"]}

    def written_states(self) -> int:
        """Boundaries that have come to the store as a whole: the state is the last of each."""
        return sum(
            moved["pages"]
            for moved in self.stats()["moved"]
            if (moved["target"], moved["component"]) == ("store", "state")
        )

    def forget(self) -> None:
        """Empties device and host, as soon as nothing runs."""
        for tier in ("device", "host"):
            response = self.post(f"/cache/flush?tier={tier}")
            assert response.status_code == 200, response.text

    def until_store_is_tried(self) -> None:
        until(lambda: not self.store()["left_alone_s"], "end of the store's pause")

    def write(self, numbers: Iterator[int]) -> str:
        """Asks new prompts until one has come to the store as a whole; gives that one."""
        for text in map(prompt, itertools.islice(numbers, TRIES_MAX)):
            self.until_store_is_tried()
            before, failed = self.written_states(), self._given_up()
            self.ask(text)
            until(partial(self._told_of_writes, before, failed), "a write, or why there is none")
            if self.written_states() > before:
                return text
        raise AssertionError(f"never written: {self.store()}")

    def _told_of_writes(self, before: int, failed: int) -> bool:
        return self.written_states() > before or self._given_up() > failed

    def _given_up(self) -> int:
        return sum(drop["count"] for drop in self.stats()["dropped"] if drop["target"] == "store")


@contextmanager
def running(*servers: Graftline) -> Iterator[None]:
    """Kills them in the end; the first question waits until they are ready."""
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
        yield
