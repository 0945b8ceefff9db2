"""Who may call what."""

from __future__ import annotations

import openai
import pytest
from server_support import Live, chat_body

from graftline.errors import ConfigError
from graftline.server.auth import OPEN_PATHS, Keys
from graftline.server.config import ServerConfig

GUARDED = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/server_info"),
    ("GET", "/cache/stats"),
    ("POST", "/reset_prefix_cache"),
    ("POST", "/flush_cache"),
]


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer", "Basic key-one", "key-one", "Bearer key-on\xe9"]
)
def test_without_a_key_nothing_is_told(keyed: Live, method: str, path: str, header: str | None) -> None:
    with keyed.http() as http:
        headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
        response = http.request(method, path, headers=headers, content=b"{" if method == "POST" else b"")
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.json()["error"]["type"] == "authentication_error"
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["X-Request-Id"]


@pytest.mark.parametrize("key", ["key-one", "key-two", "key-admin"])
def test_any_key_opens_the_api(keyed: Live, key: str) -> None:
    assert keyed.client(key).models.list().data[0].id == "tiny"
    assert keyed.client(key).chat.completions.create(**chat_body()).usage


def test_the_client_sees_what_was_wrong(keyed: Live) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        keyed.client("wrong").models.list()
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_what_machines_ask_for_is_open(keyed: Live, path: str) -> None:
    assert keyed.get(path).status_code == 200


def test_options_is_open(keyed: Live) -> None:
    with keyed.http() as http:
        assert http.options("/v1/chat/completions").status_code != 401


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/flush_cache"])
def test_resetting_needs_the_admin_key(keyed: Live, path: str) -> None:
    with keyed.http() as http:
        assert http.post(path, headers={"Authorization": "Bearer key-one"}).status_code == 401
        assert http.post(path, headers={"Authorization": "Bearer key-admin"}).status_code == 200


def test_without_keys_all_is_open(live: Live) -> None:
    assert live.post("/flush_cache", None).status_code == 200
    assert live.client("whatever").models.list().data


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_without_keys_the_server_stays_on_this_machine(host: str) -> None:
    with pytest.raises(ConfigError, match="API key"):
        ServerConfig(host=host)
    assert ServerConfig(host=host, api_keys=("k",)).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_needs_no_key(host: str) -> None:
    assert ServerConfig(host=host).host == host


def test_keys_are_kept_as_digests() -> None:
    keys = Keys(["secret"])
    assert keys.accept("secret")
    assert not keys.accept("secreT")
    assert not Keys([])
    assert "secret" not in repr(vars(keys))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "192.0.2.1", "localhost.evil.example", ""]
)
def test_without_keys_a_request_for_another_name_is_refused(live: Live, host: str) -> None:
    response = live.get("/v1/models", headers={"Host": host})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")
    assert live.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"]
)
def test_without_keys_this_machines_names_are_taken(live: Live, host: str) -> None:
    assert live.get("/v1/models", headers={"Host": host}).status_code == 200


def test_with_a_key_any_name_is_taken(keyed: Live) -> None:
    headers = {"Host": "llm.example", "Authorization": "Bearer key-one"}
    assert keyed.get("/v1/models", headers=headers).status_code == 200
