"""Servers that a run of the tests starts once; what breaks a server starts one of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest

from graftline.tiers.store.base import Store
from tiers.store.servers import BIN, Mooncake, RedisServer, S3Server, find_redis


def needs(*, module: str = "", program: str = "") -> None:
    """Skips, with the reason, where a package is missing."""
    if module and importlib.util.find_spec(module) is None:
        pytest.skip(f"the package '{module}' is not installed")
    if program and not (BIN / program).exists():
        pytest.skip(f"the program '{program}' is not installed")


@pytest.fixture(scope="session", params=["redis", "valkey"])
def redis_program(request) -> str:
    needs(module="redis")
    program = find_redis(request.param)
    if program is None:
        pytest.skip(f"no {request.param} server on this machine")
    return program


@pytest.fixture(scope="session")
def redis_server(redis_program, tmp_path_factory) -> Iterator[RedisServer]:
    server = RedisServer(redis_program, tmp_path_factory.mktemp("redis"))
    try:
        yield server.up()
    finally:
        server.remove()


@pytest.fixture
def own_redis(redis_program, tmp_path) -> Iterator[RedisServer]:
    """A server for one test, not started yet."""
    server = RedisServer(redis_program, tmp_path)
    yield server
    server.remove()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory) -> Iterator[S3Server]:
    needs(module="obstore", program="weed")
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        yield server.up()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def mooncake_loads() -> None:
    """Skips where Mooncake cannot be loaded."""
    needs(module="mooncake", program="mooncake_master")
    pytest.importorskip("mooncake.store", reason="Mooncake cannot be loaded", exc_type=ImportError)


@pytest.fixture(scope="session")
def mooncake(mooncake_loads, tmp_path_factory) -> Iterator[Mooncake]:
    cluster = Mooncake(tmp_path_factory.mktemp("mooncake"))
    try:
        yield cluster.up()
    finally:
        cluster.remove()


@pytest.fixture
def own_mooncake(mooncake_loads, tmp_path) -> Iterator[Mooncake]:
    """A cluster for one test, not started yet; a dead process is noticed after 3 s."""
    cluster = Mooncake(tmp_path, client_ttl_s=3)
    yield cluster
    cluster.remove()


@pytest.fixture
def opened() -> Iterator[Callable[[str], Store]]:
    """Opens Mooncake stores that are closed in the end."""
    from graftline.tiers.store.mooncake import open_mooncake  # noqa: PLC0415

    stores = []

    def make(url: str):
        stores.append(open_mooncake(url))
        return stores[-1]

    yield make
    for store in stores:
        store.close()
