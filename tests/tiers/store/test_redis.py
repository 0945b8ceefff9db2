"""Redis and Valkey, real servers: the suite of all stores, and each way in which they fail."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.open import open_store
from graftline.tiers.store.redis import open_redis
from tiers.store.conformance import StoreConformance, content, key, read
from tiers.store.servers import RedisServer, free_ports

KEYS = [key(i) for i in range(8)]
VALUES = [content(i, 5000) for i in range(8)]


def reason_of(call) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


def calls(store):
    """One call of each operation."""
    return {
        "exists": lambda: store.exists(KEYS),
        "get_into": lambda: read(store, KEYS, 5000),
        "put": lambda: store.put(KEYS, VALUES),
        "remove": lambda: store.remove(KEYS),
        "clear": store.clear,
        "stat": store.stat,
    }


@pytest.mark.rule("B-6")
class TestRedis(StoreConformance):
    @pytest.fixture
    def store(self, redis_server):
        store = open_store(redis_server.url)
        store.clear()
        yield store
        store.close()

    def reopen(self, store):
        return open_store(store.url)


@pytest.mark.rule("B-6")
class TestUnixSocket(StoreConformance):
    @pytest.fixture
    def store(self, redis_server):
        store = open_store(f"redis+unix://{redis_server.socket}?db=3&prefix=a.b:c/d")
        store.clear()
        yield store
        store.close()


@pytest.mark.rule("B-23")
def test_clear_leaves_other_prefixes_and_foreign_keys_alone(redis_server):
    from redis import Redis  # noqa: PLC0415

    stores = [open_redis(f"{redis_server.url}?prefix={p}") for p in ("a", "a:b", "a/b", "axb", "a.b")]
    with Redis(port=redis_server.port) as client:
        client.flushdb()
        client.set("a:note", "mine")
        for store in stores:
            store.put(KEYS, VALUES)
        stores[0].clear()
        assert [store.exists(KEYS[:1]) for store in stores] == [[False]] + [[True]] * 4
        stores[4].clear()
        assert [store.exists(KEYS[:1]) for store in stores] == [[False], [True], [True], [True], [False]]
        assert client.get("a:note") == b"mine"
        client.flushdb()
    for store in stores:
        store.close()


def test_objects_expire_when_asked_to(redis_server):
    from redis import Redis  # noqa: PLC0415

    store = open_redis(f"{redis_server.url}?prefix=brief&ttl=1000")
    store.put(KEYS[:1], VALUES[:1])
    with Redis(port=redis_server.port) as client:
        assert 0 < client.ttl(f"brief:{KEYS[0].hex()}") <= 1000
    store.clear()
    store.close()


def test_a_key_of_another_type_is_a_miss_and_can_be_replaced(redis_server):
    from redis import Redis  # noqa: PLC0415

    store = open_redis(f"{redis_server.url}?prefix=types")
    store.put(KEYS[:2], VALUES[:2])
    with Redis(port=redis_server.port) as client:
        client.delete(f"types:{KEYS[0].hex()}")
        client.rpush(f"types:{KEYS[0].hex()}", "a list")
    assert read(store, KEYS[:2], 5000) == [b"", VALUES[1]]
    assert store.put(KEYS[:1], VALUES[:1]) == [True]
    assert read(store, KEYS[:1], 5000) == VALUES[:1]
    store.clear()
    store.close()


def test_no_reply_outgrows_its_buffer(redis_server):
    """An object of 64 MB under a key that is read with 100 bytes: the server sends 101 of them."""
    from redis import Redis  # noqa: PLC0415

    store = open_redis(f"{redis_server.url}?prefix=huge")
    with Redis(port=redis_server.port) as client:
        client.set(f"huge:{KEYS[0].hex()}", bytes(64 << 20))
        before = client.info("stats")["total_net_output_bytes"]
        assert read(store, KEYS[:1], 100) == [b""]
        assert client.info("stats")["total_net_output_bytes"] - before < 1 << 20
    store.clear()
    store.close()


@pytest.mark.rule("B-22")
def test_a_full_server_that_will_not_evict(redis_program, tmp_path, caplog):
    server = RedisServer(redis_program, tmp_path, "--maxmemory", "16mb", "--maxmemory-policy", "noeviction")
    try:
        store = open_redis(server.up().url)
        keys, values = [key(i) for i in range(40)], [content(i, 1 << 20) for i in range(40)]
        with caplog.at_level(logging.WARNING, "graftline"):
            taken = store.put(keys, values)
        assert 0 < sum(taken) < 16
        assert "noeviction" in caplog.text
        assert store.exists(keys) == taken
        with pytest.raises(StoreError, match="allkeys-lru") as caught:
            store.put([key("more")], [values[0]])
        assert caught.value.reason == "full"
        assert read(store, keys[:1], 1 << 20) == values[:1]  # reading goes on
        store.remove(keys)
        assert store.put([key("more")], [values[0]]) == [True]
        store.close()
    finally:
        server.remove()


def test_a_server_with_a_bound_makes_room(redis_program, tmp_path):
    server = RedisServer(redis_program, tmp_path, "--maxmemory", "16mb", "--maxmemory-policy", "allkeys-lru")
    try:
        store = open_redis(server.up().url)
        keys, values = [key(i) for i in range(40)], [content(i, 1 << 20) for i in range(40)]
        assert [store.put([k], [v]) for k, v in zip(keys, values, strict=True)] == [[True]] * 40
        there = store.exists(keys)
        assert 4 < sum(there) < 16
        assert there[-1]
        assert store.stat().capacity_bytes == 16 << 20
        store.close()
    finally:
        server.remove()


def test_a_server_without_a_bound_is_told_of(redis_server, caplog):
    with caplog.at_level(logging.WARNING, "graftline"):
        for arguments in ("?prefix=bounds", "?prefix=bounds&ttl=60"):
            store = open_redis(redis_server.url + arguments)
            store.put(KEYS[:2], VALUES[:2])
            store.put(KEYS[:2], VALUES[:2])
            store.clear()
            store.close()
    assert caplog.text.count("no maxmemory") == 1


@pytest.mark.rule("B-20")
def test_down_at_the_start_then_up_then_down_then_up(own_redis):
    store = open_redis(own_redis.url)
    for name, call in calls(store).items():
        assert reason_of(call) == "down", name
    for _ in range(2):
        own_redis.up()
        assert store.put(KEYS, VALUES) == [True] * 8
        assert read(store, KEYS, 5000) == VALUES
        own_redis.kill()
        for name, call in calls(store).items():
            assert reason_of(call) == "down", name
    store.close()


def test_a_connection_that_the_server_closed_is_no_fault(own_redis):
    """A restart between two calls: the idle connection is dead, the next call opens another."""
    store = open_redis(own_redis.up().url)
    store.put(KEYS, VALUES)
    own_redis.kill()
    own_redis.up()
    assert store.exists(KEYS) == [False] * 8
    assert store.put(KEYS, VALUES) == [True] * 8
    store.close()


@pytest.mark.rule("B-21")
def test_a_frozen_server_and_no_late_answer_after_it(own_redis):
    """What a frozen server says once it goes on belongs to nobody."""
    store = open_redis(f"{own_redis.up().url}?timeout=1")
    store.put(KEYS, VALUES)
    own_redis.freeze()
    for name, call in calls(store).items():
        if name not in ("remove", "clear", "put"):
            assert reason_of(call) == "timeout", name
    own_redis.thaw()
    patient = open_redis(own_redis.url)
    assert read(patient, KEYS, 5000) == VALUES
    store_again = [read(store, [k], 5000)[0] for k in reversed(KEYS)]
    assert store_again == VALUES[::-1]
    store.close()
    patient.close()


def test_a_server_that_dies_under_many_threads(own_redis):
    """Each call ends with an answer that is right, or with a reason."""
    store = open_redis(f"{own_redis.up().url}?connections=3")
    store.put(KEYS, VALUES)
    begun, wrong, reasons = threading.Barrier(5), [], set()

    def work() -> None:
        begun.wait()
        while True:
            try:
                got = read(store, KEYS, 5000)
            except StoreError as error:
                reasons.add(error.reason)
                return
            if got != VALUES:
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait()
    own_redis.kill()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert reasons == {"down"}
    store.close()


def test_calls_wait_for_a_connection_and_not_for_ever(own_redis):
    """More calls than connections: those beyond wait, for `timeout` at most."""
    store = open_redis(f"{own_redis.up().url}?connections=1&timeout=1")
    own_redis.freeze()
    reasons: list[str] = []
    threads = [
        threading.Thread(target=lambda: reasons.append(reason_of(lambda: store.exists(KEYS))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own_redis.thaw()
    assert reasons == ["timeout"] * 4
    assert store.exists(KEYS) == [False] * 8
    store.close()


def test_passwords(redis_program, tmp_path):
    server = RedisServer(redis_program, tmp_path, "--requirepass", "open:@sesame")
    try:
        server.up()
        good = open_redis(f"redis://:open%3A%40sesame@127.0.0.1:{server.port}")
        assert good.put(KEYS, VALUES) == [True] * 8
        assert "sesame" not in good.url
        assert "sesame" not in repr(good)
        for login in ("", ":wrong@", "nobody:open%3A%40sesame@"):
            store = open_redis(f"redis://{login}127.0.0.1:{server.port}")
            for name, call in calls(store).items():
                assert reason_of(call) == "refused", (login, name)
            store.close()
        good.close()
    finally:
        server.remove()


@pytest.mark.rule("B-22")
def test_a_server_that_takes_no_writes(own_redis):
    from redis import Redis  # noqa: PLC0415

    store = open_redis(own_redis.up().url)
    store.put(KEYS, VALUES)
    with Redis(port=own_redis.port) as client:
        client.config_set("min-replicas-to-write", 1)
    assert reason_of(lambda: store.put(KEYS, VALUES)) == "refused"
    assert read(store, KEYS, 5000) == VALUES
    store.close()


def test_tls_with_a_ca_of_ones_own(redis_program, tmp_path):
    (port,) = free_ports(1)
    # Without a certificate either kind of build ends at once, and says why.
    tried = subprocess.run(
        [redis_program, "--port", "0", "--tls-port", str(port)], capture_output=True, check=False
    )
    if b"No tls-cert-file" not in tried.stdout:
        pytest.skip("this server was built without TLS")
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", private, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    tls = ("--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(private))
    server = RedisServer(
        redis_program, tmp_path, *tls, "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"
    )
    try:
        server.up()
        store = open_redis(f"rediss://127.0.0.1:{port}?ca={certificate}")
        assert store.put(KEYS, VALUES) == [True] * 8
        assert read(store, KEYS, 5000) == VALUES
        stranger = open_redis(f"rediss://127.0.0.1:{port}")  # does not know the CA
        assert reason_of(lambda: stranger.exists(KEYS)) == "down"
        store.close()
        stranger.close()
    finally:
        server.remove()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://", "names no host"),
        ("redis:127.0.0.1", "'//'"),
        ("redis://127.0.0.1/zero", "number of a database"),
        ("redis://127.0.0.1/0?db=1", "number of a database"),
        ("redis://127.0.0.1?prefx=a", "did you mean 'prefix'"),
        ("redis://127.0.0.1?prefix=a b", "cannot be a prefix"),
        ("redis://127.0.0.1?prefix=a*", "cannot be a prefix"),
        ("redis://127.0.0.1?prefix=", "cannot be a prefix"),
        ("redis://127.0.0.1?ttl=0", "'ttl=0'"),
        ("redis://127.0.0.1?timeout=-1", "'timeout=-1'"),
        ("redis://127.0.0.1?connections=many", "'connections=many'"),
        ("redis://127.0.0.1:99999", "not a URL"),
        ("redis://127.0.0.1?ttl=1&ttl=2", "twice"),
        ("redis://127.0.0.1?ca=/x", "TLS only"),
        ("redis+unix://", "names no socket"),
        ("redis+unix://host/path", "names no socket"),
        ("http://127.0.0.1", "redis://"),
    ],
)
def test_urls_that_make_no_sense(url, says):
    with pytest.raises(ConfigError) as caught:
        open_redis(url)
    assert says in str(caught.value)


def test_no_message_shows_a_password():
    for url in ("redis://:s3cr3t@127.0.0.1?x=1", "redis://u:s3cr3t@127.0.0.1:x", "redis://u:s3/cr3t@h:1"):
        with pytest.raises(ConfigError) as caught:
            open_redis(url)
        assert "cr3t" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"graftline\[store-redis\]"):
        open_redis("redis://127.0.0.1")
