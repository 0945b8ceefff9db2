"""Object stores, against a real S3 server: the suite of all stores, and each way in which they fail."""

from __future__ import annotations

import itertools
import socket
import sys
import threading

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import GuardLimits
from graftline.tiers.store.object import open_object_store
from graftline.tiers.store.open import open_store, open_stores
from tiers.store.conformance import StoreConformance, content, key, read
from tiers.store.conftest import needs
from tiers.store.servers import S3_LOGIN, S3Server, free_ports

KEYS = [key(i) for i in range(8)]
VALUES = [content(i, 5000) for i in range(8)]
LOGIN = "{}:{}@".format(*S3_LOGIN)
names = itertools.count()


def reason_of(call) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


def client(server: S3Server, bucket: str):
    """obstore itself, to see what lies in a bucket."""
    from obstore.store import S3Store  # noqa: PLC0415

    access, secret = S3_LOGIN
    return S3Store(
        bucket,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=access,
        secret_access_key=secret,
        client_options={"allow_http": True},
    )


def calls(store):
    """One call of each operation."""
    return (
        lambda: store.exists(KEYS),
        lambda: read(store, KEYS, 5000),
        lambda: store.put(KEYS, VALUES),
        lambda: store.remove(KEYS),
        store.clear,
    )


def make_bucket(server: S3Server, bucket: str = "") -> str:
    """A new bucket: a PUT of the empty path makes it, and answers without the tag of an object."""
    import obstore  # noqa: PLC0415
    from obstore.exceptions import GenericError  # noqa: PLC0415

    bucket = bucket or f"graftline-{next(names)}"
    with pytest.raises(GenericError, match="ETag"):
        obstore.put(client(server, bucket), "", b"")
    return bucket


def paths_in(server: S3Server, bucket: str) -> list[str]:
    import obstore  # noqa: PLC0415

    return sorted(entry["path"] for page in obstore.list(client(server, bucket)) for entry in page)


@pytest.fixture(scope="module")
def bucket(s3_server) -> str:
    return make_bucket(s3_server)


@pytest.fixture(autouse=True)
def _obstore() -> None:
    needs(module="obstore")


@pytest.mark.rule("B-6")
class TestS3(StoreConformance):
    @pytest.fixture
    def store(self, s3_server, bucket):
        self.path = f"/suite/{next(names)}"
        store = open_store(s3_server.url(bucket, self.path))
        self.reopened = lambda: open_store(s3_server.url(bucket, self.path))
        yield store
        store.close()

    def reopen(self, store):
        return self.reopened()


@pytest.mark.rule("B-6")
class TestBehindRedis(StoreConformance):
    """A near store before a far one, guarded, as a server has them."""

    @pytest.fixture
    def store(self, redis_server, s3_server, bucket):
        urls = [f"{redis_server.url}?prefix=near", s3_server.url(bucket, f"/far/{next(names)}")]
        store = open_stores(urls, GuardLimits(deadline_s=60))
        store.clear()
        yield store
        store.close()


def test_where_objects_lie(s3_server, bucket):
    store = open_object_store(s3_server.url(bucket, "/where/this"))
    store.put(KEYS[:2], VALUES[:2])
    expected = sorted(f"where/this/{k.hex()[:2]}/{k.hex()}" for k in KEYS[:2])
    assert [p for p in paths_in(s3_server, bucket) if p.startswith("where/")] == expected
    store.close()


@pytest.mark.rule("B-23")
def test_clear_leaves_everything_else_alone(s3_server):
    import obstore  # noqa: PLC0415

    bucket = make_bucket(s3_server)
    stores = [open_object_store(s3_server.url(bucket, p)) for p in ("/a", "/a/b", "/ab", "")]
    for store in stores:
        store.put(KEYS, VALUES)
    foreign = [f"a/{'0' * 64}", f"a/zz/{'0' * 64}", f"a/01/{'2' * 64}", "a/notes.txt"]
    for path in foreign:
        obstore.put(client(s3_server, bucket), path, b"mine")
    stores[0].clear()
    assert [store.exists(KEYS) for store in stores] == [[False] * 8] + [[True] * 8] * 3
    stores[3].clear()
    assert not any(stores[3].exists(KEYS))
    assert set(foreign) <= set(paths_in(s3_server, bucket))
    for store in stores:
        store.close()


def test_clear_walks_over_more_than_one_page(s3_server):
    bucket = make_bucket(s3_server)
    store = open_object_store(s3_server.url(bucket, more="&concurrency=16"))
    keys = [key(("page", i)) for i in range(1300)]
    assert all(store.put(keys, [b"x"] * len(keys)))
    store.clear()
    assert paths_in(s3_server, bucket) == []
    store.close()


@pytest.mark.rule("B-22")
def test_a_bucket_that_is_not_there(s3_server):
    store = open_object_store(s3_server.url("never-made"))
    assert store.exists(KEYS) == [False] * 8
    assert read(store, KEYS) == [b""] * 8
    with pytest.raises(StoreError, match="is the bucket there") as caught:
        store.put(KEYS, VALUES)
    assert caught.value.reason == "refused"
    store.close()


def test_a_wrong_secret(s3_server, bucket):
    for login in ((S3_LOGIN[0], "wrong-secret"), ("nobody", S3_LOGIN[1])):
        store = open_object_store(s3_server.url(bucket, login=login))
        assert [reason_of(call) for call in calls(store)[:3]] == ["refused"] * 3
        store.close()


@pytest.mark.rule("B-20")
def test_down_at_the_start_then_up_then_frozen_then_killed_then_up(tmp_path):
    needs(program="weed")
    server = S3Server(tmp_path)
    store = open_object_store(server.url("graftline-life", more="&timeout=60"))  # the first PUT makes volumes
    hasty = open_object_store(server.url("graftline-life", more="&timeout=1"))
    try:
        assert [reason_of(call) for call in calls(store)] == ["down"] * 5
        make_bucket(server.up(), "graftline-life")
        assert store.put(KEYS, VALUES) == [True] * 8
        server.freeze()
        assert [reason_of(call) for call in calls(hasty)[:2]] == ["timeout"] * 2
        server.thaw()
        assert read(store, KEYS, 5000) == VALUES
        server.kill()
        assert [reason_of(call) for call in calls(store)] == ["down"] * 5
        server.up()
        assert store.put(KEYS[:1], VALUES[:1]) == [True]
        assert read(store, KEYS[:1], 5000) == VALUES[:1]
    finally:
        store.close()
        hasty.close()
        server.remove()


def test_a_server_that_takes_the_request_and_says_nothing():
    """All requests of a batch are in their time limit together, and the rest is not tried."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        port = silent.getsockname()[1]
        store = open_object_store(
            f"s3://{LOGIN}b/p?endpoint=http://127.0.0.1:{port}&timeout=0.5&concurrency=4"
        )
        assert reason_of(lambda: store.exists([key(i) for i in range(200)])) == "timeout"
        store.close()


def test_closing_ends_calls_that_wait(s3_server):
    """A batch that is still queued when the store is closed ends with `closed`, not never."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        port = silent.getsockname()[1]
        store = open_object_store(f"s3://{LOGIN}b/p?endpoint=http://127.0.0.1:{port}&timeout=1&concurrency=1")
        reasons: list[str] = []
        thread = threading.Thread(target=lambda: reasons.append(reason_of(lambda: store.exists(KEYS))))
        thread.start()
        connection, _ = silent.accept()  # the first request is under way
        store.close()
        thread.join()
        connection.close()
    assert reasons in (["closed"], ["timeout"])


def test_one_object_that_cannot_be_had_does_not_spoil_the_others(s3_server, bucket):
    import obstore  # noqa: PLC0415

    store = open_object_store(s3_server.url(bucket, "/mixed"))
    store.put(KEYS[:3], VALUES[:3])
    path = f"mixed/{KEYS[1].hex()[:2]}/{KEYS[1].hex()}"
    obstore.put(client(s3_server, bucket), path, bytes(50_000))  # larger than any buffer here
    assert read(store, KEYS[:3], 5000) == [VALUES[0], b"", VALUES[2]]
    store.close()


@pytest.mark.rule("B-20")
@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket/prefix?endpoint=http://127.0.0.1:{port}&timeout=1",
        "az://container/prefix?account=tests&endpoint=http://127.0.0.1:{port}/tests&timeout=1",
    ],
)
def test_the_other_providers_are_asked_at_their_endpoint(url, monkeypatch):
    """No server of theirs runs here: what can be seen is that the request goes to the endpoint."""
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    with socket.create_server(("127.0.0.1", 0)) as server:
        store = open_object_store(url.format(port=server.getsockname()[1]))
        reasons: list[str] = []
        thread = threading.Thread(target=lambda: reasons.append(reason_of(lambda: store.exists(KEYS[:1]))))
        thread.start()
        connection, _ = server.accept()
        request = connection.recv(4096)
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        connection.close()
        thread.join()
        store.close()
    name = KEYS[0].hex()
    assert f"prefix/{name[:2]}/{name}".encode() in request.split(b"\r\n")[0].replace(b"%2F", b"/")
    assert reasons == ["refused"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "names no bucket"),
        ("s3://bucket:80", "names no bucket"),
        ("s3:bucket", "'//'"),
        ("s3://bucket/a b", "cannot be a prefix"),
        ("s3://bucket?concurrency=0", "'concurrency=0'"),
        ("s3://bucket?timeout=soon", "'timeout=soon'"),
        ("s3://bucket?regoin=x", "did you mean 'region'"),
        ("gs://bucket?region=x", "unknown argument 'region'"),
        ("s3://bucket?ca=/nowhere/ca.pem", "cannot read 'ca="),
        ("s3://bucket?endpoint=", ""),
    ],
)
def test_urls_that_make_no_sense(url, says):
    if not says:
        open_object_store(url).close()
        return
    with pytest.raises(ConfigError) as caught:
        open_object_store(url)
    assert says in str(caught.value)


def test_the_secret_is_not_shown():
    (port,) = free_ports(1)
    store = open_object_store(f"s3://AKID:t0psecret@bucket?endpoint=http://127.0.0.1:{port}")
    with pytest.raises(StoreError) as caught:
        store.put(KEYS, VALUES)
    for text in (store.url, repr(store), str(caught.value), repr(caught.value.__cause__)):
        assert "t0psecret" not in text
    store.close()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"graftline\[store-object\]"):
        open_object_store("s3://bucket")
