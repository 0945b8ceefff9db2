"""Explains requests of a trace: a replay that stops before each of them and looks.

The real core's events go into a history (`graftline.cache.history`), so what left long ago is known too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from graftline.cache.explain import Asked, Explanation, as_json, explain_match, is_missing
from graftline.cache.history import History, Moment
from graftline.errors import ConfigError
from graftline.key import Namespace, page_keys
from graftline.plan import Event, Match
from graftline.replay.forest import Counts, Passages, passages
from graftline.replay.simulate import Progress, Replayer, Setup, no_progress, simulate
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, PagedTrace, prompt_key
from graftline.replay.uses import Uses

DEFAULT_HISTORY_MAX = 2_000_000


@dataclass(frozen=True, slots=True)
class LastUse:
    """The last use of a value that left.

    Attributes:
        by: the request that used it.
        distance_slots: different slots of its component used since, by that request too. With so many, and
            room for what a running request computes, the least recently used order keeps it.
    """

    by: Moment
    distance_slots: int


@dataclass(frozen=True, slots=True)
class RequestStory:
    """A request of a trace, explained.

    Attributes:
        number: of the request, from 0.
        turn: how many requests of its session came before.
        refused: whether the pools can never hold it.
        passed_pages: how much of it any earlier request had, whether it was ever kept or not.
        explanation: the boundary and its reasons; pages are those of the trace.
        last_uses: of the last page of each stretch that left, by component and first page.
        pool_slots: slots of each pool.
    """

    number: int
    turn: int
    refused: bool
    passed_pages: int
    explanation: Explanation
    last_uses: Mapping[tuple[str, int], LastUse]
    pool_slots: Mapping[str, int]

    @property
    def lost_pages(self) -> int:
        """Pages that came before and were computed again."""
        return self.passed_pages - self.explanation.boundary_pages


def worst(trace: PagedTrace, setup: Setup, count: int, progress: Progress = no_progress) -> list[int]:
    """The requests that computed most pages again that had come before, the worst first; numbers from 0."""
    reused: list[int] = []

    def observe(paged: PagedRequest, match: Match | None) -> None:  # noqa: ARG001
        reused.append(match.boundary_tokens // KEY_TOKENS if match else 0)

    ahead = passages(trace)
    simulate(trace, setup, progress, observe)
    lost = ahead.endless_pages() - np.array(reused, dtype=np.int64)
    order = np.argsort(-lost, kind="stable")[:count]
    return [int(request) for request in order if lost[request] > 0]


def explain(
    trace: PagedTrace,
    setup: Setup,
    requests: Sequence[int],
    *,
    history_max: int = DEFAULT_HISTORY_MAX,
    progress: Progress = no_progress,
) -> list[RequestStory]:
    """Explains some requests, in the order asked.

    Args:
        trace: the requests.
        setup: the cache.
        requests: numbers from 0.
        history_max: pages remembered of each component.
        progress: told how many requests were served since the last time.

    Raises:
        ConfigError: the trace has no such request.
    """
    ahead = passages(trace)
    for number in requests:
        if not 0 <= number < ahead.requests:
            raise ConfigError(f"there is no request {number + 1}, the trace has {ahead.requests}")
    witness = Witness(ahead, setup, history_max)
    wanted, last = set(requests), max(requests, default=-1)
    found = {}
    for number, paged in enumerate(trace):
        if number > last:
            break
        if number in wanted:
            found[number] = witness.story(number, paged)
        witness.serve(number, paged)
        progress(1)
    return [found[number] for number in requests]


class Witness:
    """Serves a trace and remembers.

    Args:
        ahead: the trace's paths.
        setup: the cache.
        history_max: pages remembered of each component.
    """

    def __init__(self, ahead: Passages, setup: Setup, history_max: int) -> None:
        self.setup = setup
        self.replayer = Replayer(setup, record_events=True)
        self.history = History(history_max)
        self.uses = Uses(ahead)
        self.endless: Counts = ahead.endless_pages()
        self.moments: list[Moment] = []

    def serve(self, number: int, paged: PagedRequest) -> None:
        """Serves a request, unless it is refused, and takes in what happened."""
        self.moments.append(moment(number, paged))
        if not self.replayer.arrive(paged):
            return
        match = self.replayer.serve(paged)
        events = self.replayer.cache.take_events()
        self.history.feed(events, self.moments[number])
        self._note_uses(number, match, events, len(paged.pages) + len(paged.answer))

    def story(self, number: int, paged: PagedRequest) -> RequestStory:
        """Explains a request that comes next."""
        cache, page_tokens = self.replayer.cache, self.setup.page_tokens
        key = prompt_key(paged)
        match = cache.core.match(Namespace(), key, len(key) - 1)
        whole = key[: len(paged.pages) * KEY_TOKENS]
        keys = list(page_keys(Namespace().seed(), whole, KEY_TOKENS))
        asked = Asked(moment(number, paged), len(key), keys)
        seen = explain_match(asked, match, cache.components, KEY_TOKENS, self.history)
        told = replace(seen, page_tokens=page_tokens, prompt_tokens=paged.request.prompt_tokens)
        return RequestStory(
            number=number,
            turn=paged.request.turn,
            refused=not self.replayer.fits(paged),
            passed_pages=int(self.endless[number]),
            explanation=told,
            last_uses=self._last_uses(number, told),
            pool_slots={spec.name: spec.slots for spec in cache.components},
        )

    def _note_uses(self, number: int, match: Match, events: Sequence[Event], path_pages: int) -> None:
        boundary = match.boundary_tokens // KEY_TOKENS
        for spec in self.replayer.cache.components:
            if spec.rule.prefix_closed:
                self.uses.note(number, spec.name, 0, path_pages)
            else:
                self.uses.note(number, spec.name, spec.rule.first_page(boundary, KEY_TOKENS), boundary)
        for event in events:
            if event.kind == "stored":
                end = event.first_page + len(event.page_keys)
                self.uses.note(number, event.component, event.first_page, end)

    def _last_uses(self, number: int, told: Explanation) -> dict[tuple[str, int], LastUse]:
        found = {}
        for story in told.components:
            for stretch in filter(is_missing, story.stretches):
                distance = self.uses.distance(story.component, stretch.end_page - 1, number)
                if distance is not None:
                    last = LastUse(self.moments[distance.request], distance.slots)
                    found[story.component, stretch.first_page] = last
        return found


def moment(number: int, paged: PagedRequest) -> Moment:
    """Names a request of a trace; numbers are told from 1."""
    said = paged.request
    return Moment(said.ident, number + 1, said.session, said.arrival_s)


def story_json(story: RequestStory) -> dict[str, Any]:
    """As `graftline.cache.explain.as_json`, with what a trace tells besides."""
    told = as_json(story.explanation)
    page = story.explanation.page_tokens
    told |= {
        "turn": story.turn,
        "refused": story.refused,
        "passed_tokens": story.passed_pages * page,
        "lost_tokens": story.lost_pages * page,
    }
    for component, shown in zip(story.explanation.components, told["components"], strict=True):
        shown["pool_slots"] = story.pool_slots[component.component]
        for stretch, fields in zip(component.stretches, shown["stretches"], strict=True):
            last = story.last_uses.get((component.component, stretch.first_page))
            if last is not None:
                fields["last_used_by"] = asdict(last.by)
                fields["distance_slots"] = last.distance_slots
    return told
