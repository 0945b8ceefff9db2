"""A replay is the real cache: the same hits as with every token spelled out, on every core."""

from __future__ import annotations

import numpy as np
import pytest

from graftline.cache import PrefixCache
from graftline.cache.cores import has_rust
from graftline.components import ComponentSpec, ReuseRule
from graftline.errors import ConfigError
from graftline.replay.compositions import parse_composition, scaled
from graftline.replay.forest import passages
from graftline.replay.simulate import NoValues, Replayer, Setup, least_slots, simulate
from graftline.replay.tokens import KEY_TOKENS, PagedRequest
from replay.support import PAGE, random_trace, request

CORES = ["python", *(["rust"] if has_rust() else [])]
COMPOSITIONS = [
    "full",
    "full+swa:9",
    "full+state",
    "full+swa:6+state",
    "full+chunk:8",
    "full+chunk:6",
    "swa:9+state",
]
SLOTS = {"full": 14, "swa": 12, "state": 4, "chunk": 12}


def slots_of(text: str) -> dict[str, int]:
    return {name: SLOTS[name] for name, _ in parse_composition(text).rules}


def spelled(pages, first: int = 0) -> np.ndarray:
    """Tokens of pages, each of `PAGE` different ones."""
    tokens = np.asarray(pages, dtype=np.uint32)[:, None] * PAGE + np.arange(PAGE, dtype=np.uint32)
    return tokens.reshape(-1)[first:]


def serve_spelled(
    cache: PrefixCache, paged: PagedRequest, chunk_pages: int | None
) -> tuple[int, int, str, str]:
    """One request with all its tokens."""
    rest = paged.request.prompt_tokens - len(paged.pages) * PAGE
    begun = spelled(paged.answer[:1])[:rest] if len(paged.answer) else np.full(rest, 9999, dtype=np.uint32)
    with cache.begin(np.concatenate([spelled(paged.pages), begun])) as running:
        compute(running, chunk_pages)
        running.append(spelled(paged.answer, rest) if len(paged.answer) else [])
        compute(running, chunk_pages)
        running.finish()
    match = running.match
    return match.boundary_tokens // PAGE, match.path_tokens // PAGE, match.limited_by, match.reason


def compute(running, chunk_pages: int | None) -> None:
    while running.computed_tokens < len(running.tokens):
        to = running.next_stop()
        if chunk_pages:
            to = min(to, (running.computed_tokens // PAGE + chunk_pages) * PAGE)
        running.grow(to)
        running.advance(to)


@pytest.mark.parametrize(
    ("core", "text"),
    [
        (core, text)
        for core in CORES
        for text in COMPOSITIONS
        if (core, text) != ("rust", "full+chunk:6")  # chunks of no whole pages ask for the Python core
    ],
)
def test_hits_are_those_of_all_tokens_spelled_out(text: str, core: str) -> None:
    composition = parse_composition(text)
    is_chunked = "swa" in text or "chunk" in text
    for seed in range(6):
        replayer = Replayer(Setup(composition, slots_of(text), PAGE, core=core, chunk_tokens=2 * PAGE))
        whole = PrefixCache(
            [ComponentSpec(name, rule, SLOTS[name]) for name, rule in composition.rules],
            page_tokens=PAGE,
            pools={"state": NoValues()},
            core=core,
        )
        for paged in random_trace(seed, 60, depth=5):
            match = replayer.serve(paged)
            short = (match.boundary_tokens // KEY_TOKENS, match.path_tokens // KEY_TOKENS)
            assert (*short, match.limited_by, match.reason) == serve_spelled(
                whole, paged, 2 if is_chunked else None
            )
        replayer.cache.check()
        assert [use.held for use in replayer.cache.uses()] == [use.held for use in whole.uses()]


@pytest.mark.parametrize("text", COMPOSITIONS)
def test_a_scaled_rule_asks_for_the_same_pages(text: str) -> None:
    for _, rule in parse_composition(text).rules:
        for page_tokens in (1, 2, 3, 4, 16):
            check_scaled(rule, page_tokens)


def check_scaled(rule: ReuseRule, page_tokens: int) -> None:
    short = scaled(rule, page_tokens)
    assert short.prefix_closed == rule.prefix_closed
    assert short.holds_state == rule.holds_state
    for boundary in range(40):
        assert short.first_page(boundary, KEY_TOKENS) == rule.first_page(boundary, page_tokens)
        assert short.free_at_or_below(boundary, KEY_TOKENS) == rule.free_at_or_below(boundary, page_tokens)
        above = rule.free_at_or_above(boundary, 45, page_tokens)
        assert short.free_at_or_above(boundary, 45, KEY_TOKENS) == above


@pytest.mark.skipif(not has_rust(), reason="the Rust core is not installed")
@pytest.mark.parametrize("text", [text for text in COMPOSITIONS if text != "full+chunk:6"])
def test_every_core_gives_the_same_figures(text: str) -> None:
    trace = random_trace(3, 200)
    found = []
    for core in CORES:
        figures = simulate(
            trace, Setup(parse_composition(text), slots_of(text), PAGE, core=core, chunk_tokens=8)
        )
        found.append((figures.reused_tokens, figures.refusals, figures.turns, figures.pools))
    assert found[0] == found[1]


def test_an_endless_cache_reuses_every_prefix_that_came_before() -> None:
    for seed in range(10):
        trace = random_trace(seed, 100)
        figures = simulate(trace, Setup(parse_composition("full"), {"full": 2000}, PAGE))
        ahead = passages(trace)
        assert figures.reused_tokens == ahead.endless_pages().sum() * PAGE
        assert figures.pools[0].held_slots == ahead.pages
        assert figures.reused_tokens + figures.computed_tokens == figures.prompt_tokens


def test_more_memory_never_lowers_the_hits_of_lru_on_full() -> None:
    for seed in range(8):
        trace = random_trace(seed, 120, always_rest=True)
        least = max(paged.occupied_pages for paged in trace)
        found = [
            simulate(trace, Setup(parse_composition("full"), {"full": slots}, PAGE)).reused_tokens
            for slots in range(least, least + 40, 3)
        ]
        assert found == sorted(found)


def test_a_request_that_can_never_fit_is_refused_and_changes_nothing() -> None:
    small, large = request([1, 2], rest=1), request(range(10), rest=1)
    setup = Setup(parse_composition("full"), {"full": 8}, PAGE)
    figures = simulate([small, large, small], setup)
    assert (figures.requests, figures.refused, figures.reused_tokens) == (3, 1, 2 * PAGE)
    assert figures.pools[0].evicted_slots == 0


def test_what_a_component_cost_is_told_with_its_reason() -> None:
    # The second request leaves the first one's path inside: no state was kept there.
    trace = [request([1, 2, 3], rest=1), request([1, 2, 9], rest=1), request([1, 2, 8], rest=1)]
    figures = simulate(trace, Setup(parse_composition("full+state"), {"full": 50, "state": 20}, PAGE))
    (refusal,) = figures.refusals
    assert (refusal.component, refusal.reason) == ("state", "no checkpoint here")
    assert (refusal.requests, refusal.lost_tokens) == (1, 2 * PAGE)
    assert figures.reused_tokens == 2 * PAGE  # the third: a state was kept at the branch point


def test_turns_and_the_time_to_the_first_token() -> None:
    trace = [request([1, 2], rest=1, turn=0), request([1, 2, 3], rest=1, turn=1)]
    figures = simulate(trace, Setup(parse_composition("full"), {"full": 50}, PAGE))
    assert [(turn.turn, turn.prompt_tokens, turn.reused_tokens) for turn in figures.turns] == [
        (0, 9, 0),
        (1, 13, 8),
    ]
    speed = Setup(parse_composition("full"), {"full": 50}, PAGE).cost.prefill_tokens_per_s
    assert figures.first_token.mean_s == pytest.approx((9 + 5) / 2 / speed)


def test_least_slots_serve_any_request() -> None:
    for text in COMPOSITIONS:
        composition = parse_composition(text)
        least = least_slots(composition, PAGE, PAGE)
        slots = {
            name: max(count, 20) if rule.prefix_closed else count
            for (name, rule), count in zip(composition.rules, least.values(), strict=True)
        }
        for seed in range(5):
            simulate(random_trace(seed, 60, depth=8), Setup(composition, slots, PAGE, chunk_tokens=PAGE))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"policy": "guess"}, "unknown order of eviction 'guess'"),
        ({"slots": {"full": 10, "swa": 3}}, "'swa' has 3 slots"),
        ({"slots": {"full": 10}}, "'swa' has 0 slots"),
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict, told: str) -> None:
    settings = {
        "composition": parse_composition("full+swa:9"),
        "slots": {"full": 10, "swa": 50},
        "page_tokens": PAGE,
    }
    with pytest.raises(ConfigError, match=told):
        Setup(**{**settings, **change})


@pytest.mark.parametrize(
    "text", ["", "full+", "full:3", "swa:", "swa:0", "swa:x", "chunk", "mamba", "full+full"]
)
def test_compositions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="composition"):
        parse_composition(text)
