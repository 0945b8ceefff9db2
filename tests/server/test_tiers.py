"""Host memory and stores over HTTP: what left the device comes back, what one server has others reuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from server_support import (
    ENGINE,
    PAGE_TOKENS,
    Live,
    chat_body,
    events,
    figures,
    load,
    pools_are_whole,
    running,
    until,
    with_keys,
)

from graftline.cli.explain import show
from graftline.tiers.worth import BreakEven

ALWAYS = BreakEven()
TIERED = replace(ENGINE, host_bytes=64 << 20, break_even=ALWAYS, prefetch_policy="wait", explain_pages=10_000)


@contextmanager
def serving(model: Path, *stores: str, **more: Any) -> Iterator[Live]:
    with running(lambda: load(model, replace(TIERED, stores=stores, **more)), with_keys(admin="")) as live:
        yield live
        until(lambda: pools_are_whole(live), "pools whole at the end of a test")


def ask(live: Live, text: str = "Where does it come from?", **more: Any) -> tuple[Any, dict[str, int]]:
    """The answer's text, and the reused tokens by tier."""
    answer = live.post("/v1/chat/completions", chat_body(text, **more)).json()
    return answer["choices"], answer["usage"]["prompt_tokens_details"]["cached_tokens_by_tier"]


def settled(live: Live, target: str, component: str = "state") -> None:
    """Waits until something of a component has reached a tier and nothing is under way."""
    engine = live.state.backend().engine
    until(
        lambda: (
            any(m["target"] == target and m["component"] == component for m in live.stats()["moved"])
            and not engine.cache.lower.busy
            and not engine.cache.lower.pending
        ),
        f"values in the {target}",
    )


def test_what_left_the_device_comes_from_the_host(model: Path) -> None:
    with serving(model) as live:
        cold, tiers = ask(live)
        assert sum(tiers.values()) == 0
        settled(live, "host")
        assert live.post("/cache/flush?tier=device", None).json()["freed_slots"] > 0
        warm, tiers = ask(live)
        assert warm == cold
        assert tiers["host"] > 0 == tiers["device"] == tiers["store"]
        samples = figures(live)
        assert samples["graftline_prompt_tokens_total", frozenset({("source", "host")})] == tiers["host"]


@pytest.mark.parametrize("prefetch", ["wait", "timeout"])
def test_a_restart_finds_everything_again(model: Path, tmp_path: Path, prefetch: str) -> None:
    url = f"file:{tmp_path}/store"
    with serving(model, url) as live:
        cold, _ = ask(live)
        settled(live, "store")
    with serving(model, url) as live:
        warm, tiers = ask(live, prefetch_policy=prefetch, prefetch_timeout_s=60.0)
        assert warm == cold
        assert tiers["store"] > 0 == tiers["device"] == tiers["host"]
        store = live.stats()["stores"][0]
        assert store["hits"] > 0 == len(store["faults"])


def test_two_servers_share_a_store(model: Path, tmp_path: Path) -> None:
    """What one computed the other reuses, in both directions."""
    url = f"file:{tmp_path}/store"
    with serving(model, url) as one, serving(model, url) as other:
        for here, there, text in ((one, other, "First?"), (other, one, "Second?")):
            cold, _ = ask(here, text, cache_salt=text)
            settled(here, "store")
            until(lambda here=here: not here.state.backend().engine.cache.lower.busy, "written")
            warm, tiers = ask(there, text, cache_salt=text)
            assert warm == cold
            assert tiers["store"] > 0


def test_salts_never_meet_in_a_store(model: Path, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    with serving(model, url) as live:
        ask(live, cache_salt="a")
        settled(live, "store")
    with serving(model, url) as live:
        assert sum(ask(live, cache_salt="b")[1].values()) == 0


def test_a_store_is_attached_emptied_and_detached_at_run_time(model: Path, tmp_path: Path) -> None:
    url = f"file:{tmp_path}/store"
    with serving(model) as live, live.http() as http:
        attached = http.post("/cache/stores", json={"url": url})
        assert attached.status_code == 200, attached.text
        (name,) = attached.json()["stores"]
        again = http.post("/cache/stores", json={"url": url})
        assert (again.status_code, "already" in again.text) == (400, True)
        cold, _ = ask(live)
        settled(live, "store")
        assert http.post("/cache/flush?tier=store").status_code == 200
        for tier in ("device", "host"):
            assert http.post(f"/cache/flush?tier={tier}").json()["freed_slots"] > 0
        warm, tiers = ask(live)
        assert (warm, sum(tiers.values())) == (cold, 0)
        assert http.delete("/cache/stores", params={"url": name}).json() == {"stores": []}
        assert http.delete("/cache/stores", params={"url": name}).status_code == 404


@pytest.mark.parametrize("url", ["nowhere:/x", "file:", "redis://127.0.0.1:1"])
def test_a_store_that_cannot_be_is_refused_by_name(model: Path, url: str) -> None:
    """A wrong URL is an error of the request; a store that is down now may come back, and harms nothing."""
    with serving(model) as live:
        answer = live.post("/cache/stores", {"url": url})
        assert answer.status_code in ((200, 503) if url.startswith("redis") else (400,))
        cold, _ = ask(live)
        assert cold == ask(live)[0]


def test_sessions_are_opened_by_requests_and_closed_by_call(shared: Live) -> None:
    before = shared.stats()["sessions"]
    ask(shared, session_id="s-9")
    until(lambda: pools_are_whole(shared), "pools whole")
    assert shared.stats()["sessions"] == before + 1
    assert shared.post("/v1/sessions/s-9/close", None).json() == {"closed": True}
    assert shared.post("/v1/sessions/s-9/close", None).json() == {"closed": False}
    assert shared.stats()["sessions"] == before


def test_a_request_is_explained(model: Path) -> None:
    with serving(model) as live, live.http() as http:
        ask(live)
        until(lambda: pools_are_whole(live), "pools whole")
        http.post("/cache/flush?tier=device")
        http.post("/cache/flush?tier=host")
        answer = http.post("/v1/chat/completions", json=chat_body("Where does it come from?"))
        cache = answer.json()["cache"]
        assert (cache["reused_tokens"], cache["limited_by"], cache["reason"]) == (0, "full", "cleared")
        assert cache["lost_tokens"] == cache["matched_tokens"] > 0
        told = http.get(f"/cache/explain/{answer.headers['x-request-id']}").json()
        assert told["known_once_tokens"] == cache["matched_tokens"]
        assert {s["value"] for c in told["components"] for s in c["stretches"]} >= {"cleared"}
        assert http.get("/cache/explain/nobody").status_code == 404


def prompt_tokens(live: Live) -> int:
    """Deepest boundary that the prompt of `ask` may reuse."""
    answer = live.post("/v1/chat/completions", chat_body("Where does it come from?", use_cache=False)).json()
    return (answer["usage"]["prompt_tokens"] - 1) // PAGE_TOKENS * PAGE_TOKENS


@pytest.mark.rule("H-9")
def test_an_answer_tells_what_the_host_had_and_why_it_was_not_loaded(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = BreakEven(prefill_s_per_token=1e-9, host_s_per_byte=1.0)
    with serving(model, break_even=slow) as live:
        cold, _ = ask(live)
        settled(live, "host")
        live.post("/cache/flush?tier=device", None)
        answer = live.post("/v1/chat/completions", chat_body("Where does it come from?"))
        assert answer.json()["choices"] == cold
        depth = prompt_tokens(live)
        told = {"tier": "host", "reached_tokens": depth, "lost_tokens": depth, "reason": "not worth it"}
        assert answer.json()["cache"]["shortfalls"] == [told]
        counted = {"tier": "host", "reason": "not worth it", "requests": 1, "tokens": depth}
        assert live.stats()["shortfalls"] == [counted]
        labels = frozenset({("tier", "host"), ("reason", "not worth it")})
        samples = figures(live)
        assert samples["graftline_tier_shortfalls_total", labels] == 1
        assert samples["graftline_tier_lost_tokens_total", labels] == depth
        story = live.get(f"/cache/explain/{answer.headers['x-request-id']}").json()
        assert story["shortfalls"] == [told]
        show(story)
        assert f"the host reached {depth}, which cost {depth} more: not worth it" in capsys.readouterr().out
        stream = live.post("/v1/chat/completions", chat_body("Where?", stream=True))
        assert events(stream.text)[-1]["cache"]["shortfalls"] == []


@pytest.mark.rule("H-9")
def test_an_answer_tells_that_a_store_did_not_answer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(model, "redis://127.0.0.1:1/0", drain_s=1.0) as live:
        answer = live.post("/v1/chat/completions", chat_body("Where does it come from?"))
        (told,) = answer.json()["cache"]["shortfalls"]
        assert told["reason"] in ("down", "left alone")
        assert told == {
            "tier": "store",
            "reached_tokens": None,
            "lost_tokens": None,
            "reason": told["reason"],
        }
        show(live.get(f"/cache/explain/{answer.headers['x-request-id']}").json())
        assert f"the store may reach deeper: {told['reason']}" in capsys.readouterr().out


def test_a_store_attached_at_run_time_is_measured_and_shown(model: Path, tmp_path: Path) -> None:
    with serving(model, break_even=None) as live:
        assert live.stats()["break_even"]["store_is_known"]
        (name,) = live.post("/cache/stores", {"url": f"file:{tmp_path}/store"}).json()["stores"]
        assert not live.stats()["break_even"]["store_is_known"]

        def known() -> bool:
            ask(live, f"Question {next(numbers)}?")
            return bool(live.stats()["break_even"]["store_is_known"])

        numbers = count()
        until(known, "the store's speed")
        settled(live, "store")
        stats, info = live.stats(), live.get("/server_info").json()
        assert stats["break_even"]["store_latency_s"] > 0
        assert info["break_even"] == stats["break_even"]
        (store,) = stats["stores"]
        assert (store["url"], store["written_bytes"] > 0, store["calls"]["put"] > 0) == (name, True, True)
        samples = figures(live)
        labels = frozenset({("store", name), ("operation", "put")})
        assert samples["graftline_store_calls_total", labels] == live.stats()["stores"][0]["calls"]["put"]


def test_without_memory_nothing_is_explained(shared: Live) -> None:
    answer = shared.get("/cache/explain/x")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "explain_off")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/cache/flush?tier=host"),
        ("POST", "/cache/stores"),
        ("DELETE", "/cache/stores?url=x"),
        ("GET", "/cache/explain/x"),
    ],
)
def test_what_changes_the_cache_needs_the_admin_key(keyed: Live, method: str, path: str) -> None:
    with keyed.http() as http:
        user = http.request(method, path, headers={"Authorization": "Bearer key-one"})
        admin = http.request(method, path, headers={"Authorization": "Bearer key-admin"})
    assert user.status_code == 401
    assert admin.status_code != 401
