"""C-11: what the tree has forgotten is named all the same."""

from __future__ import annotations

import pytest

from graftline.cache import PrefixCache
from graftline.cache.explain import as_json
from graftline.cache.history import History
from graftline.cache.watch import Watch
from graftline.components import ComponentSpec, Full
from graftline.errors import ConfigError
from spec.cache_support import Model

PROMPT = list(range(100, 141))


def watched(composition: str, slots: int) -> tuple[Model, Watch]:
    """A model whose cache remembers."""
    model = Model(composition, page_tokens=4, slots=slots, record_events=True)
    watch = Watch(History(1000), explanations_max=3)
    model.cache.start_watch(watch)
    return model, watch


@pytest.mark.rule("C-11")
def test_a_forgotten_prefix_is_told_with_the_component_and_the_reason() -> None:
    """The tree knows nothing of it any more; the request is told what was lost, and to whom."""
    model, watch = watched("full", 14)
    model.run(PROMPT, label="first")
    model.run(range(300, 341), label="thief")
    with model.begin([*PROMPT, 9], label="again") as request:
        assert request.match.path_tokens < 40
        assert request.forgotten is not None
        assert (request.forgotten.known_tokens, request.forgotten.component) == (40, "full")
        assert request.forgotten.reason == "evicted"
    told = as_json(watch.explanation("again"))
    left = [s for s in told["components"][0]["stretches"] if s["value"] == "evicted"]
    assert {s["removed_for"]["request"] for s in left} == {"thief"}
    assert {s["stored_for"]["request"] for s in left} == {"first"}


@pytest.mark.rule("C-11")
def test_nothing_is_called_forgotten_that_never_was_known() -> None:
    """A new prompt, and one that is all there."""
    model, _ = watched("full_state", 60)
    with model.begin(PROMPT) as request:
        assert request.forgotten is None
    model.run(PROMPT)
    with model.begin(PROMPT) as request:
        assert request.forgotten is None


def test_explanations_are_bounded_and_events_are_not_hoarded() -> None:
    """The oldest explanation goes; events are kept for outside only when asked for."""
    model, watch = watched("full", 60)
    for number in range(5):
        model.run(PROMPT, label=f"r{number}")
    assert watch.explanation("r1") is None
    assert watch.explanation("r4") is not None
    assert model.cache.take_events() == []
    keeping = Watch(History(1000), keep_events=True)
    model.cache.start_watch(keeping)
    model.run(range(300, 341))
    assert {event.kind for event in model.cache.take_events()} == {"stored"}


def test_a_watch_needs_events() -> None:
    """Else it would see nothing."""
    cache = PrefixCache([ComponentSpec("full", Full(), 4)], page_tokens=4)
    with pytest.raises(ConfigError, match="needs events"):
        cache.start_watch(Watch(History(10)))


@pytest.mark.rule("C-11")
def test_who_was_evicted_is_named_and_not_who_was_dead_then() -> None:
    """The state leaves for another request; the pages that only it made usable are dead, and leave later."""
    model, _ = watched("full_state", {"full": 35, "state": 3})
    model.run(PROMPT, label="first")
    for start in (300, 500, 700):
        model.run(range(start, start + 41), label="thief")
    with model.begin([*PROMPT, 9], label="again") as request:
        assert request.match.path_tokens < 40
        assert (request.forgotten.component, request.forgotten.reason) == ("state", "evicted")
