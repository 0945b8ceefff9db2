"""Orders of eviction that age are told how long answers are, in tokens, whatever pages they fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graftline.cache import PrefixCache, Session
from graftline.components import ComponentSpec, Full
from graftline.errors import ConfigError
from graftline.policies import EvictionPolicy, Passage, Usage
from graftline.replay.compositions import parse_composition
from graftline.replay.requests import NO_IDS, ReplayRequest
from graftline.replay.simulate import Replayer, Setup
from graftline.replay.tokens import PagedRequest
from spec.cache_support import INSTALLED
from spec.sketch import HERE, Sketch

PAGE_TOKENS = 16
PROMPT_TOKENS = 20 * PAGE_TOKENS + 1
SHORT, LONG = 1, 12
"""Answers that end inside the prompt's last page; whoever gets a long one comes back late."""
SESSIONS = 16


class Listener(EvictionPolicy):
    """Notes the answers that it is told of."""

    name = "listener"
    ages = True

    def __init__(self) -> None:
        self.answers: list[float] = []

    def registered(self, passage: Passage) -> None:
        self.answers.append(passage.answer_pages)

    def rank(self, usage: Usage) -> float:
        return float(usage.last_tick)


def cache_of(policy: EvictionPolicy | str, slots: int, core: str = "python") -> PrefixCache:
    """One component, and no values."""
    components = [ComponentSpec("full", Full(), slots)]
    return PrefixCache(components, page_tokens=PAGE_TOKENS, policy=policy, core=core)


def serve(
    cache: PrefixCache, name: str, prompt: Sequence[int], answer: Sequence[int], told: int | None = None
) -> int:
    """A whole request; returns the tokens that it reused."""
    with cache.begin(prompt, session=Session(name)) as request:
        request.append(answer)
        while request.computed_tokens < len(request.tokens):
            end = request.next_stop()
            request.grow(end)
            request.advance(end)
        request.finish(answer_tokens=told)
        return request.reused_tokens


@pytest.mark.rule("P-8")
def test_an_answer_is_told_in_tokens_whatever_pages_it_fills() -> None:
    """Not as what the last insertion made: that was the prompt's, where the answer fills no page."""
    policy = Listener()
    cache = cache_of(policy, slots=100)
    prompt = list(range(40))
    for answer in (4, 8, 24, 0):
        serve(cache, f"answer of {answer}", prompt, range(100, 100 + answer))
    assert policy.answers == [4 / 16, 8 / 16, 24 / 16, 0.0]


@pytest.mark.rule("P-8")
def test_where_keys_are_no_tokens_the_length_is_told_apart() -> None:
    policy = Listener()
    cache = cache_of(policy, slots=100)
    serve(cache, "of eight", range(40), range(100, 104), told=8)
    serve(cache, "of none", range(40), range(200, 232), told=0)
    assert policy.answers == [0.5, 0.0]


@pytest.mark.rule("P-8")
@pytest.mark.parametrize(
    ("answer_tokens", "told"), [(0, 0.0), (15, 0.5), (16, 0.5), (48, 1.5), (4000, 125.0)]
)
def test_a_replay_tells_what_the_trace_says_to_half_a_page(answer_tokens: int, told: float) -> None:
    """Whether the trace names what is in the answer, or not."""
    policy = Listener()
    replayer = Replayer(Setup(parse_composition("full"), {"full": 100}, 32, core="python"))
    replayer.cache.core._state.policy = policy
    ids = np.arange(1, 4, dtype=np.uint64)
    request = ReplayRequest("r", "s", 0, 0.0, None, 96, answer_tokens, 32, ids, NO_IDS)
    paged = PagedRequest(request, ids, NO_IDS, has_rest=False)
    replayer.serve(paged)
    assert policy.answers == [told]


@pytest.mark.rule("P-8")
def test_an_answer_of_a_length_that_cannot_be_is_refused(sketch: Callable[..., Sketch]) -> None:
    core = sketch(full=Full()).core
    session, lease = core.open_session("one"), core.lease(core.match(HERE, [1, 2]))
    for tokens in (-1, 2**32):
        with pytest.raises(ConfigError, match=f"answer_tokens is {tokens}"):
            core.register(session, lease, answer_tokens=tokens)
    assert core.register(session, lease, answer_tokens=2**32 - 1)


def reused_when_told(core: str, *, tells_answers: bool) -> int:
    """Sessions whose return goes by the length of their last answer; room for a third of them."""
    cache = cache_of("gittins", slots=SESSIONS * 20 // 3, core=core)
    due = [(float(number), number, 0) for number in range(SESSIONS)]
    reused = 0
    for _ in range(600):
        due.sort()
        now_s, number, turn = due.pop(0)
        cache.set_time(now_s)
        is_long = (number + turn) // 3 % 2
        answer = LONG if is_long else SHORT
        first = 1000 * number
        told = None if tells_answers else 0
        reused += serve(cache, str(number), range(first, first + PROMPT_TOKENS), range(answer), told)
        due.append((now_s + (100.0 if is_long else 10.0), number, turn + 1))
    cache.check()
    return reused


@pytest.mark.rule("P-8", "P-9")
@pytest.mark.parametrize("core", INSTALLED)
def test_answers_that_fill_no_page_tell_who_comes_back_soon(core: str) -> None:
    told = reused_when_told(core, tells_answers=True)
    untold = reused_when_told(core, tells_answers=False)
    assert told > 1.3 * untold
