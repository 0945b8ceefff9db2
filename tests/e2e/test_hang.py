"""A store that takes connections and never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.live import TIERED, Graftline, Truth, prompt, running
from tiers.store.conftest import needs

CALLS_MAX = 8
"""Of one store, hung ones included."""


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
        assert "timeout" in server.faults()
        with ThreadPoolExecutor(12) as pool:
            many = [prompt(next(numbers)) for _ in range(12)]
            answers = list(pool.map(lambda text: server.ask(text, prefetch_policy="wait").text, many))
        assert answers == [truth(text) for text in many]
        assert server.ask(many[0]).tiers["device"] > 0
        assert 0 < len(silent.taken) <= CALLS_MAX
        assert server.terminate() == 0
        assert "Traceback" not in server.log
