"""Starting the server and asking it, for the demos."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import httpx2
from rich.console import Console

READY = re.compile(r"https?://[\w.\-]+:\d+")


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer: its text, the time to its first token, and what was reused."""

    text: str
    ttft_s: float
    prompt_tokens: int
    reused_tokens: int
    lost_tokens: int = 0
    limited_by: str = ""
    reason: str = ""
    boundaries: Mapping[str, int] = field(default_factory=dict)


class Server:
    """`graftline serve` as a child process, on a free port; stopped on leaving."""

    def __init__(self, model: Path, console: Console, *options: str) -> None:
        command = [sys.executable, "-m", "graftline", "serve", str(model), "--port", "0", *options]
        self._log: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._console = console
        console.print(f"starting: graftline serve {model} --port 0", highlight=False)
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        self.url = ""

    def __enter__(self) -> Server:
        self.url = self._wait_ready()
        self._console.print(f"serving at {self.url}", highlight=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait_ready(self) -> str:
        """The URL that the server prints; an error with its output when it ends before."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            found = READY.findall(self._output())
            if found and is_ready(found[-1]):
                return found[-1]
            if self._process.poll() is not None:
                break
            time.sleep(0.2)
        output = self._output()
        self._process.kill()
        raise RuntimeError(f"the server did not start:\n{output}")

    def _output(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")


def is_ready(url: str) -> bool:
    """Whether a server answers there."""
    try:
        return httpx2.get(f"{url}/health", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False


def ask_chat(
    client: httpx2.Client, messages: Sequence[Mapping[str, str]], tokens: int, *, use_cache: bool
) -> Answer:
    """Asks for a greedy chat answer of exactly `tokens` tokens."""
    body = {"messages": list(messages), "use_cache": use_cache}
    return ask(client, "/v1/chat/completions", body, tokens)


def ask(client: httpx2.Client, path: str, body: Mapping[str, Any], tokens: int) -> Answer:
    """Streams one greedy answer and reads the usage and the reuse report at its end."""
    request = {
        **body,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text, ttft, last = "", 0.0, {}
    start = time.perf_counter()
    with client.stream("POST", path, json=request) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.read().decode()}")
        for chunk in chunks(response):
            piece = "".join(content(choice) for choice in chunk["choices"])
            if piece and not ttft:
                ttft = time.perf_counter() - start
            text += piece
            if chunk.get("usage"):
                last = chunk
    usage, cache = last["usage"], last.get("cache") or {}
    return Answer(
        text=text,
        ttft_s=ttft,
        prompt_tokens=usage["prompt_tokens"],
        reused_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        lost_tokens=cache.get("lost_tokens", 0),
        limited_by=cache.get("limited_by", ""),
        reason=cache.get("reason", ""),
        boundaries=cache.get("boundaries", {}),
    )


def chunks(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream."""
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(chunk["error"]["message"])
            yield chunk


def content(choice: Mapping[str, Any]) -> str:
    """The text of one streamed choice, chat or completion."""
    delta = choice.get("delta")
    return (delta.get("content") or "") if delta is not None else choice.get("text", "")
