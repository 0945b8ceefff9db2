"""A server on a folder, killed in the middle of serving and started again, several times."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2

from e2e.live import TIERED, Graftline, Truth, prompt, running

ROUNDS = 3


def test_a_server_that_is_killed_finds_its_store_again(
    model: Path, tmp_path: Path, truth: Truth, numbers: Iterator[int]
) -> None:
    store = ("--store", f"file:{tmp_path / 'store'}")
    texts: list[str] = []
    for _ in range(ROUNDS):
        server = Graftline(model, *TIERED, *store)
        with running(server):
            all_are_right(server, texts, truth)
            texts.append(server.write(numbers))
            more = [prompt(next(numbers)) for _ in range(4)]
            with ThreadPoolExecutor(len(more)) as pool:
                answers = [pool.submit(ask_unless_killed, server, text) for text in more]
                answers[0].result()
                server.kill()
                told = [answer.result() for answer in answers]
            assert all(one in ("", truth(text)) for one, text in zip(told, more, strict=True))
            texts += more
    server = Graftline(model, *TIERED, *store)
    with running(server):
        all_are_right(server, texts, truth)
        assert server.terminate() == 0


def ask_unless_killed(server: Graftline, text: str) -> str:
    """The answer, or nothing where the server went before it."""
    with suppress(httpx2.TransportError):
        return server.ask(text).text
    return ""


def all_are_right(server: Graftline, texts: list[str], truth: Truth) -> None:
    """Every text is right, and of what was written something is reused."""
    answers = [server.ask(text) for text in texts]
    assert [answer.text for answer in answers] == [truth(text) for text in texts]
    assert not texts or any(answer.tiers["store"] for answer in answers)
    assert not server.faults()
