"""A model, the true answers, and the servers that stores need."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.live import Graftline, Truth, running
from tiers.store.conftest import mooncake_loads, needs, own_mooncake  # noqa: F401  fixtures
from tiers.store.servers import RedisServer, find_redis


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    command = [sys.executable, "-m", "graftline", "make-model", "inkling", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def plain(model: Path) -> Iterator[Graftline]:
    """A server without lower tiers, with pools so small that a few prompts fill them."""
    small = ("--slots", "full=128,state=24")
    server = Graftline(model, "--eviction-policy", "session", "--explain-pages", "10000", *small)
    with running(server):
        yield server


@pytest.fixture(scope="session")
def truth(plain: Graftline) -> Truth:
    known: dict[str, str] = {}

    def answer(text: str) -> str:
        if text not in known:
            known[text] = plain.ask(text, use_cache=False).text
        return known[text]

    return answer


@pytest.fixture
def numbers() -> Iterator[int]:
    """Numbers of prompts that nobody has asked yet."""
    return itertools.count(1)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Redis, or Valkey where that is what there is; not started yet."""
    needs(module="redis")
    program = find_redis("redis") or find_redis("valkey")
    if program is None:
        pytest.skip("neither redis-server nor valkey-server on this machine")
    server = RedisServer(program, tmp_path)
    yield server
    server.remove()
