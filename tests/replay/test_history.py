"""What became of pages: the history agrees with the tree, and forgets the oldest."""

from __future__ import annotations

import numpy as np
import pytest

from graftline.cache import PrefixCache
from graftline.cache.explain import Asked, as_json, explain_match
from graftline.cache.history import HELD, NEVER, Fate, History, Moment, Stretch, stretches
from graftline.components import Checkpoint, ComponentSpec, Full
from graftline.errors import ConfigError
from graftline.key import Namespace, page_keys
from graftline.plan import Event, Tier
from graftline.replay.simulate import NoValues

PAGE = 4
SEED = Namespace().seed()


def cache(full: int, state: int) -> PrefixCache:
    return PrefixCache(
        [ComponentSpec("full", Full(), full), ComponentSpec("state", Checkpoint(), state)],
        page_tokens=PAGE,
        pools={"state": NoValues()},
        record_events=True,
    )


def serve(cached: PrefixCache, history: History, number: int, tokens: np.ndarray) -> None:
    with cached.begin(tokens) as request:
        while request.computed_tokens < len(tokens):
            stop = request.next_stop()
            request.grow(stop)
            request.advance(stop)
        request.finish()
    history.feed(cached.take_events(), Moment(f"request {number}", number))


def prompt(kind: int, pages: int = 4) -> np.ndarray:
    return np.arange(pages * PAGE + 1, dtype=np.uint32) + 1000 * kind


def keys_of(tokens: np.ndarray) -> list[bytes]:
    return list(page_keys(SEED, tokens[: len(tokens) // PAGE * PAGE], PAGE))


def states(history: History, component: str, tokens: np.ndarray) -> list[str]:
    fates = history.fates(component, Tier.DEVICE, keys_of(tokens))
    return [fate.state if fate else NEVER for fate in fates]


def test_it_tells_when_for_whom_and_why() -> None:
    cached, history = cache(full=10, state=6), History()
    serve(cached, history, 1, prompt(1))
    serve(cached, history, 2, prompt(2))
    assert states(history, "full", prompt(1)) == [HELD] * 4
    assert states(history, "state", prompt(1)) == [NEVER, NEVER, NEVER, HELD]
    serve(cached, history, 3, prompt(3))  # the tail of the first path, and its state, make room
    found = history.fates("full", Tier.DEVICE, keys_of(prompt(1)))
    assert [fate.state for fate in found if fate] == [HELD, "dead", "dead", "evicted"]
    gone = found[3]
    assert gone is not None
    assert (gone.stored, gone.removed) == (Moment("request 1", 1), Moment("request 3", 3))
    assert states(history, "state", prompt(1)) == [NEVER, NEVER, NEVER, "path evicted"]


def test_it_agrees_with_the_tree_after_many_requests() -> None:
    cached, history = cache(full=13, state=5), History()
    order = np.random.default_rng(4).integers(0, 6, size=80)
    for number, kind in enumerate(order.tolist()):
        serve(cached, history, number, prompt(kind, 3 + kind % 3))
        for each in range(6):
            tokens = prompt(each, 3 + each % 3)
            match = cached.core.match(Namespace(), tokens)
            held = states(history, "full", tokens).count(HELD)
            assert held == match.path_tokens // PAGE
            deepest = max(
                (page + 1 for page, state in enumerate(states(history, "state", tokens)) if state == HELD),
                default=0,
            )
            assert deepest == match.votes[1].boundary_tokens // PAGE


def test_the_oldest_are_forgotten_and_that_is_told() -> None:
    cached, history = cache(full=100, state=20), History(entries_max=10)
    for number in range(5):
        serve(cached, history, number, prompt(number))
    assert history.forgotten == 10  # of 20 pages of full; there are only 5 states
    assert len(history) == 15
    assert states(history, "full", prompt(0)) == [NEVER] * 4
    assert states(history, "full", prompt(4)) == [HELD] * 4
    match = cached.core.match(Namespace(), prompt(0))
    told = explain_match(
        Asked(Moment("x", 9), 17, keys_of(prompt(0))), match, cached.components, PAGE, history
    )
    assert not told.is_complete
    with pytest.raises(ConfigError, match="entries_max is 0"):
        History(0)


def test_tiers_are_kept_apart() -> None:
    history = History()
    event = Event("stored", "full", Tier.HOST, Namespace(), 0, (b"k",), SEED, prompt(0), "")
    history.feed([event], Moment("a", 1))
    assert history.fates("full", Tier.DEVICE, [b"k"]) == [None]
    assert history.fates("full", Tier.HOST, [b"k"]) == [Fate(Moment("a", 1), None, "")]


def test_a_value_that_was_there_before_the_history_began() -> None:
    cached, history = cache(full=6, state=6), History()
    serve(cached, History(), 1, prompt(1))
    serve(cached, history, 2, prompt(2))
    fate = history.fates("full", Tier.DEVICE, keys_of(prompt(1)))[3]
    assert fate == Fate(None, Moment("request 2", 2), "evicted")


def test_stretches_join_pages_of_one_fate() -> None:
    one, two = Fate(Moment("a", 1), None, ""), Fate(None, Moment("b", 2), "evicted")
    assert stretches([]) == ()
    assert stretches([one, one, two, None]) == (
        Stretch(0, 2, one),
        Stretch(2, 3, two),
        Stretch(3, 4, None),
    )


def test_an_explanation_names_votes_and_what_was_known_once() -> None:
    cached, history = cache(full=10, state=6), History()
    for number in (1, 2, 3):
        serve(cached, history, number, prompt(number))
    tokens = prompt(1)
    match = cached.core.match(Namespace(), tokens, len(tokens) - 1)
    asked = Asked(Moment("request 4", 4), len(tokens), keys_of(tokens))
    told = explain_match(asked, match, cached.components, PAGE, history)
    assert (told.boundary_pages, told.path_pages, told.known_pages, told.limit_pages) == (0, 1, 4, 4)
    assert (told.limited_by, told.is_complete) == ("state", True)
    full, state = told.components
    assert (full.own_pages, full.without_pages, full.needed_first_page) == (1, 0, 0)
    assert (state.own_pages, state.without_pages, state.needed_first_page) == (0, 1, 3)
    assert [(part.first_page, part.end_page, part.state) for part in full.stretches] == [
        (0, 1, HELD),
        (1, 3, "dead"),  # without the state no boundary could use them
        (3, 4, "evicted"),
    ]
    shown = as_json(told)
    assert (shown["reused_tokens"], shown["known_once_tokens"]) == (0, 16)
    assert shown["components"][0]["stretches"][1]["removed_for"]["request"] == "request 3"
    assert shown["components"][1]["stretches"][0]["stored_for"] is None
