"""What the cache tells over HTTP: isolation, figures, reset."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_support import Live, chat_body, figures, pools_are_whole, total, until


def reused(live: Live, **more: Any) -> int:
    answer = live.post("/v1/chat/completions", chat_body("How are salts kept apart?", **more)).json()
    count = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert isinstance(count, int)
    return count


def test_two_salts_never_share(live: Live) -> None:
    assert reused(live, cache_salt="tenant-a") == 0
    assert reused(live, cache_salt="tenant-b") == 0
    assert reused(live, cache_salt="tenant-a") > 0
    assert reused(live, cache_salt="tenant-b") > 0


def test_without_the_cache_nothing_is_reused_or_kept(live: Live) -> None:
    assert reused(live, cache_salt="off", use_cache=False) == 0
    assert reused(live, cache_salt="off", use_cache=False) == 0
    assert reused(live, cache_salt="off") == 0
    assert reused(live, cache_salt="off") > 0


def test_sessions_do_not_keep_apart(live: Live) -> None:
    assert reused(live, cache_salt="session", session_id="one") == 0
    assert reused(live, cache_salt="session", session_id="two") > 0


def test_a_reset_forgets_everything(live: Live) -> None:
    reused(live, cache_salt="reset")
    until(lambda: pools_are_whole(live), "pools whole")
    held = sum(pool["held"] for pool in live.stats()["pools"])
    assert live.post("/reset_prefix_cache", None).json() == {"freed_slots": held}
    assert all(pool["free"] == pool["capacity"] for pool in live.stats()["pools"])
    assert reused(live, cache_salt="reset") == 0


def test_figures_add_up(live: Live) -> None:
    before = figures(live)
    answers = [
        live.post("/v1/chat/completions", chat_body(f"Question {i // 2}?", cache_salt="figures")).json()
        for i in range(6)
    ]
    until(lambda: pools_are_whole(live), "pools whole")
    after = figures(live)

    def gained(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return after[key] - before.get(key, 0)

    prompt = sum(answer["usage"]["prompt_tokens"] for answer in answers)
    cached = sum(answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers)
    assert cached > 0
    assert gained("graftline_prompt_tokens_total", source="device") == cached
    assert gained("graftline_prompt_tokens_total", source="computed") == prompt - cached
    assert gained("graftline_reused_tokens_total", tier="device") == cached
    assert gained("graftline_generation_tokens_total") == 6 * 8
    assert gained("graftline_requests_total", outcome="length") == 6
    assert gained("graftline_time_to_first_token_seconds_count") == 6
    assert gained("graftline_e2e_request_latency_seconds_count") == 6
    assert gained("graftline_inter_token_latency_seconds_count") == 6 * 7
    lost = sum(answer["cache"]["lost_tokens"] for answer in answers)
    name = "graftline_boundary_lost_tokens_total"
    assert total(after, name) - total(before, name) == lost
    for component in ("full", "swa", "state"):
        slots = {
            state: after[
                "graftline_slots", frozenset({("component", component), ("tier", "device"), ("state", state)})
            ]
            for state in ("free", "held", "private")
        }
        where = frozenset({("component", component), ("tier", "device")})
        assert sum(slots.values()) == after["graftline_slots_capacity", where]
        assert after["graftline_slots_used", where] == slots["held"] + slots["private"]


def test_stats_and_figures_say_the_same(live: Live) -> None:
    until(lambda: pools_are_whole(live), "pools whole")
    stats, now = live.stats(), figures(live)
    assert stats["prompt_tokens"] == stats["reused_tokens"] + stats["computed_tokens"]
    assert total(now, "graftline_prompt_tokens_total") == stats["prompt_tokens"]
    assert total(now, "graftline_generation_tokens_total") == stats["generated_tokens"]
    assert total(now, "graftline_requests_running") == 0 == total(now, "graftline_requests_waiting")


def test_server_info(live: Live) -> None:
    info = live.get("/server_info").json()
    assert info["models"] == ["tiny", "tiny-alias"]
    assert info["page_size"] == 16
    assert [pool["component"] for pool in info["pools"]] == ["full", "swa", "state"]
    assert live.get("/version").json() == {"version": info["version"]}


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=4))
def test_reuse_never_changes_the_text(live: Live, turns: list[tuple[int, int]]) -> None:
    """Prompts that share heads of any length are answered as they are without a cache."""
    for kind, length in turns:
        prompt = [(7 * kind + i * (kind + 1)) % 400 + 10 for i in range(length)]
        body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        warm = live.post("/v1/completions", body).json()
        cold = live.post("/v1/completions", {**body, "use_cache": False}).json()
        assert warm["choices"] == cold["choices"]
