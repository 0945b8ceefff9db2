"""Sessions over the tiers of a cache, and shares of namespaces."""

from __future__ import annotations

import threading

import pytest

from graftline.cache import HostConfig, Session, SessionLimits
from graftline.errors import ConfigError
from graftline.key import Namespace
from graftline.policies import EvictionPolicy, Passage, Usage
from spec.cache_support import Model

PROMPT = list(range(100, 141))
OTHER = list(range(300, 341))


@pytest.fixture(params=["python", "rust"])
def core(request: pytest.FixtureRequest) -> str:
    """Which core keeps the books."""
    return request.param


def two_prompts(core: str, **more: object) -> Model:
    """Room for two prompts of 41 tokens and not for a third one; sessions steer."""
    return Model("full", page_tokens=4, slots=26, core=core, policy="session", **more)


@pytest.mark.rule("S-1", "S-3")
def test_what_a_session_comes_back_to_outlives_what_is_newer(core: str) -> None:
    """Plain recency would keep the newer prompt."""
    model = two_prompts(core)
    model.run(PROMPT, session=Session("s"))
    model.run(OTHER)
    model.run(range(500, 541))
    assert model.begin_and_abort(PROMPT) == 40
    assert model.begin_and_abort(OTHER) < 40
    model.assert_idle_and_whole()


@pytest.mark.rule("S-1")
def test_a_closed_session_weighs_nothing(core: str) -> None:
    """Closed by call, by idle time, or because there are too many."""
    for close in ("call", "time", "limit"):
        limits = SessionLimits(ttl_s=10, most=1 if close == "limit" else 5)
        model = two_prompts(core, sessions=limits)
        model.cache.set_time(1.0)
        model.run(PROMPT, session=Session("s"))
        model.run(OTHER)
        if close == "call":
            assert model.cache.close_session("s")
            assert not model.cache.close_session("s")
        elif close == "time":
            assert model.cache.set_time(100.0) == ("s",)
        else:
            with model.begin([1], session=Session("t")):
                pass
        model.run(range(500, 541))
        assert model.begin_and_abort(PROMPT) < 40, close
        assert model.begin_and_abort(OTHER) == 40, close


@pytest.mark.rule("S-4")
def test_a_late_finisher_does_not_reopen_a_session(core: str) -> None:
    """In no tier: the copy to the host lands after the session was closed."""
    host = HostConfig({"full": 300})
    model = two_prompts(core, host=host)
    with model.begin(PROMPT, session=Session("s")) as request:
        model.prefill(request)
        model.cache.close_session("s")
        request.finish()
    model.cache.lower.flush()
    levels = (model.cache.device, model.cache.lower.host)
    assert [level.core.stats().sessions for level in levels] == [0, 0]
    model.assert_idle_and_whole()


@pytest.mark.rule("S-6")
def test_a_fork_comes_back_to_where_the_other_is(core: str) -> None:
    """It stays when the other one is closed."""
    model = two_prompts(core)
    model.run(PROMPT, session=Session("s"))
    model.cache.fork_session("s", "t")
    model.cache.close_session("s")
    model.run(OTHER)
    model.run(range(500, 541))
    assert model.begin_and_abort(PROMPT) == 40
    with pytest.raises(ConfigError):
        model.cache.fork_session("nobody", "u")


def test_sessions_live_in_the_host_too(core: str) -> None:
    """What the device lost is kept in the host for who comes back."""
    host = HostConfig({"full": 26})
    model = two_prompts(core, host=host)
    model.run(PROMPT, session=Session("s"))
    for start in (300, 500, 700):
        model.run(range(start, start + 41))
        model.cache.lower.flush()
    assert model.cache.lower.host.core.stats().sessions == 1
    loading = model.cache.load(PROMPT)
    reused = model.begin_and_abort(PROMPT) if loading is None else loading.boundary_tokens
    if loading is not None:
        loading.release()
    assert reused == 40
    model.cache.close()


class Listener(EvictionPolicy):
    """Notes what it is told when a session comes by."""

    name = "listener"
    ages = True

    def __init__(self) -> None:
        self.passages: list[tuple[int, float]] = []

    def registered(self, passage: Passage) -> None:
        self.passages.append((passage.pages, passage.answer_pages))

    def rank(self, usage: Usage) -> float:
        return float(usage.last_tick)


def told(model: Model) -> list[list[tuple[int, float]]]:
    """What each tier was told."""
    levels = (model.cache.device, model.cache.lower.host)
    return [level.core._state.policy.passages for level in levels]


@pytest.mark.rule("S-3")
@pytest.mark.parametrize("answer", [0, 2, 9])
@pytest.mark.parametrize("lands", ["before the end", "under way at the end", "after the end"])
def test_each_tier_is_told_of_a_request_once_when_it_is_complete(lands: str, answer: int) -> None:
    """Whenever the boundaries that it keeps land in the host, and whether the last of them is new."""
    host = HostConfig(
        {"full": 300, "state": 50}, write_policy="write_back" if "after" in lands else "write_through"
    )
    model = Model("full_state", page_tokens=4, slots=100, core="python", host=host, policy=Listener())
    gate, pool = threading.Event(), model.pools["full"]
    if "under way" in lands:
        export = pool.export_rows
        pool.export_rows = lambda *given: (gate.wait(), export(*given))  # type: ignore[method-assign]
    with model.begin(PROMPT, session=Session("s")) as request:
        model.prefill(request)
        if "before" in lands:
            model.cache.lower.flush()
        model.cache.pump()
        model.generate(request, range(900, 900 + answer))
        request.finish()
    gate.set()
    model.cache.lower.flush()
    pages = (len(PROMPT) + max(answer - 1, 0)) // 4
    assert told(model) == [[(pages, answer / 4)]] * 2
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("S-3")
def test_no_tier_is_told_of_a_request_that_was_aborted() -> None:
    host = HostConfig({"full": 300, "state": 50})
    model = Model("full_state", page_tokens=4, slots=100, core="python", host=host, policy=Listener())
    with model.begin(PROMPT, session=Session("s")) as request:
        model.prefill(request)
    model.cache.lower.flush()
    assert told(model) == [[], []]
    model.run(PROMPT, session=Session("s"))
    model.cache.lower.flush()
    assert [len(passages) for passages in told(model)] == [1, 1]
    model.assert_idle_and_whole()
    model.cache.close()


@pytest.mark.rule("C-12")
def test_a_namespace_is_held_to_its_share(core: str) -> None:
    """One tenant's scan cannot flush the others, and keeps no more than its share."""
    model = Model("full_state", page_tokens=4, slots=40, core=core)
    model.cache.namespace_share = 0.5
    model.run(PROMPT, salt="quiet")
    for start in range(1000, 3000, 100):
        model.run(range(start, start + 41), salt="scan")
    assert model.begin_and_abort(PROMPT, "quiet") == 40
    for name in model.rules:
        held = model.cache.core.held_pages(name, Namespace(salt="scan"))
        assert held <= 20
    model.assert_idle_and_whole()
