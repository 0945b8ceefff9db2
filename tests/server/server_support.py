"""Runs whole servers in the tests of this folder, on a free port of this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import openai
from prometheus_client.parser import text_string_to_metric_families

from graftline.engine import EngineConfig, load_engine
from graftline.server.app import create_app
from graftline.server.config import ServerConfig
from graftline.server.serve import DrainingServer, bind, url_of
from graftline.server.state import Backend, Phase, State
from graftline.server.tokens import Tokenizer

PATIENCE_S = 120  # something stuck shows as a failed wait
PAGE_TOKENS = 16
ENGINE = EngineConfig(
    page_tokens=PAGE_TOKENS,
    chunk_tokens=64,
    max_model_tokens=4096,
    threads=1,
    device_bytes=32 << 20,
    device="cpu",
)
SERVER = ServerConfig(port=0, model_names=("tiny", "tiny-alias"), log_interval_s=0)
SYSTEM = "You are a patient teacher. Answer in one short sentence, and never guess what you do not know."


@dataclass(frozen=True)
class Live:
    """A server that runs."""

    url: str
    state: State
    server: DrainingServer

    def client(self, key: str = "none", **settings: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **settings)

    def http(self, **settings: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=PATIENCE_S, **settings)

    def post(self, path: str, body: Any, **settings: Any) -> httpx2.Response:
        with self.http() as http:
            return http.post(path, json=body, **settings)

    def get(self, path: str, **settings: Any) -> httpx2.Response:
        with self.http() as http:
            return http.get(path, **settings)

    def stats(self) -> Any:
        return self.get("/cache/stats").json()


def until(holds: Callable[[], Any], what: str) -> None:
    """Asks again and again until it holds."""
    pause = threading.Event()
    for _ in range(PATIENCE_S * 50):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError(f"never came: {what}")


def load(model: Path, engine: EngineConfig) -> Backend:
    return Backend(load_engine(str(model), engine), Tokenizer.load(str(model)))


@contextmanager
def running(
    make: Callable[[], Backend],
    config: ServerConfig = SERVER,
    *,
    wait_ready: bool = True,
    send_buffer_bytes: int = 0,
) -> Iterator[Live]:
    """A server on a thread, ended by what a signal does."""
    state = State(config)
    listening = bind(config)
    if send_buffer_bytes:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    settled = threading.Event()
    server = DrainingServer(create_app(state, make, lambda _: settled.set()), state)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started, "start of the server")
        if wait_ready:
            assert settled.wait(PATIENCE_S)
            assert state.phase is Phase.READY, state.failure
        yield Live(url_of(listening), state, server)
    finally:
        server.stop()
        server.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def pools_are_whole(live: Live) -> bool:
    """Whether nothing runs, and no slot is private or leased (rules C-1 and C-2)."""
    stats = live.stats()
    idle = not stats["requests_running"] and not stats["requests_waiting"]
    return idle and all(
        pool["private"] == 0 == pool["leased"] and pool["free"] + pool["held"] == pool["capacity"]
        for pool in stats["pools"]
    )


def chat_body(text: str = "What is a page?", **more: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return {"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0, **more}


def events(text: str) -> list[Any]:
    """Parsed `data` lines of a whole stream, without the last `[DONE]`, which must be there."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def figures(live: Live) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples of /metrics by name and labels, the model's name left out."""
    found = {}
    for family in text_string_to_metric_families(live.get("/metrics").text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "tiny"
            labels = frozenset((k, v) for k, v in sample.labels.items() if k != "model_name")
            found[sample.name, labels] = sample.value
    return found


def total(samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str) -> float:
    return sum(value for (sample, _), value in samples.items() if sample == name)


def with_keys(*keys: str, admin: str = "") -> ServerConfig:
    return replace(SERVER, api_keys=keys, admin_api_key=admin)
