"""A store that takes connections and never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.live import TIERED, Graftline, Truth, prompt, running, until
from tiers.store.conftest import needs

CALLS_MAX = 8
"""Of one store, hung ones included."""
STORES = 12


class Silent:
    """Listens, takes every connection, and says nothing."""

    def __init__(self) -> None:
        self.taken: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self.taken.append(self._listening.accept()[0])

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # ends the thread's `accept`
        self._thread.join()
        for one in (self._listening, *self.taken):
            one.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.close()


def test_a_store_that_hangs_keeps_nobody_waiting(
    model: Path, truth: Truth, silent: Silent, numbers: Iterator[int]
) -> None:
    needs(module="redis")
    url = f"redis://127.0.0.1:{silent.port}/0?timeout=600"  # so that only the server's own deadline is left
    server = Graftline(model, *TIERED, "--store", url)
    with running(server):
        for policy in ("wait", "timeout", "best_effort"):
            text = prompt(next(numbers))
            server.until_store_is_tried()
            answer = server.ask(text, prefetch_policy=policy, prefetch_timeout_s=0.5)
            assert (answer.text, sum(answer.tiers.values())) == (truth(text), 0)
            (short,) = answer.cache["shortfalls"]
            assert (short["tier"], short["reached_tokens"]) == ("store", None)
            assert short["reason"] in {"timeout", "not in time", "not asked in time", "left alone"}
        assert "timeout" in server.faults()
        with ThreadPoolExecutor(12) as pool:
            many = [prompt(next(numbers)) for _ in range(12)]
            answers = list(pool.map(lambda text: server.ask(text, prefetch_policy="wait").text, many))
        assert answers == [truth(text) for text in many]
        assert server.ask(many[0]).tiers["device"] > 0
        assert 0 < len(silent.taken) <= CALLS_MAX
        assert server.terminate() == 0
        assert "Traceback" not in server.log


@pytest.mark.rule("X-9")
def test_a_second_signal_does_not_wait_for_stores_that_hang(
    model: Path, truth: Truth, silent: Silent, numbers: Iterator[int]
) -> None:
    """So many in a row that the write is still under way when the signals come: each is asked for 5 s."""
    needs(module="redis")
    server = Graftline(model, *TIERED, "--store-drain-timeout", "600")
    with running(server):
        urls = [f"redis://127.0.0.1:{silent.port}/{number}?timeout=600" for number in range(STORES)]
        for url in urls:
            assert server.post("/cache/stores", {"url": url}).status_code == 200
        text = prompt(next(numbers))
        assert server.ask(text, prefetch_policy="best_effort").text == truth(text)
        until(lambda: any(moved["target"] == "host" for moved in server.stats()["moved"]), "a copy down")
        server.signal()
        until(lambda: "stopping: 0 requests" in server.log, "the first signal's effect")
        server.signal()
        assert server.end() == 1
        server.kill()  # reads its log to the end
        assert "closing was cut short: " in server.log
        assert "boundaries that were kept are not in the stores" in server.log
        assert "Traceback" not in server.log
