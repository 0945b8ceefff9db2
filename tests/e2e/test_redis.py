"""A server and a Redis that comes late, is killed, and comes back empty."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.live import TIERED, Graftline, Truth, prompt, running, until
from tiers.store.servers import RedisServer


def test_redis_comes_late_is_killed_and_comes_back_empty(
    model: Path, truth: Truth, redis: RedisServer, numbers: Iterator[int]
) -> None:
    server = Graftline(model, *TIERED, "--store", redis.url)
    with running(server):
        early = [prompt(next(numbers)) for _ in range(2)]
        assert [server.ask(text).text for text in early] == [truth(text) for text in early]
        until(lambda: "down" in server.faults(), "a reason")
        assert server.store()["written_bytes"] == 0

        redis.up()
        comes_back(server, server.write(numbers), truth)

        many = [prompt(next(numbers)) for _ in range(6)]
        server.forget()
        with ThreadPoolExecutor(len(many)) as pool:
            answers = [pool.submit(server.ask, text) for text in many]
            answers[0].result()
            redis.kill()
            assert [answer.result().text for answer in answers] == [truth(text) for text in many]
        assert server.ask(many[0]).text == truth(many[0])

        redis.up()
        comes_back(server, server.write(numbers), truth)
        for text in many:  # whatever was written before is gone, and is written again
            comes_back(server, text, truth)
        assert server.terminate() == 0
        assert "Traceback" not in server.log


def comes_back(server: Graftline, text: str, truth: Truth) -> None:
    """A prompt comes from the store, as soon as it is there."""

    def came() -> bool:
        server.until_store_is_tried()
        server.forget()
        answer = server.ask(text)
        assert answer.text == truth(text)
        return answer.tiers["store"] > 0

    until(came, "reuse from the store")
