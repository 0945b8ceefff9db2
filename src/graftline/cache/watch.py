"""Remembers what became of cached pages, and explains each request's boundary while it can be known."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from graftline.cache.explain import Asked, Explanation, explain_match
from graftline.cache.history import HELD, NEVER, History, Moment
from graftline.cache.level import Level
from graftline.cache.shortfall import Shortfall
from graftline.errors import ConfigError
from graftline.key import Namespace, Tokens, page_keys
from graftline.plan import Event, Match

EXPLANATIONS_MAX = 1000
EVICTED = "evicted"
"""The reason of what left though it could have been used."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A prefix that was cached once and has left the tree.

    Attributes:
        known_tokens: how much of the prompt was known once.
        component: whose value left first though it could have been used; else the first that is missing.
        reason: why it left.
    """

    known_tokens: int
    component: str
    reason: str


class Watch:
    """The eyes of one cache: fed with its trees' events, each time with the request for which they happened.

    Args:
        history: what is remembered.
        keep_events: whether events are also kept for `take_events`, which must then be called.
        explanations_max: most explanations kept; the oldest is forgotten.
    """

    def __init__(
        self, history: History, *, keep_events: bool = False, explanations_max: int = EXPLANATIONS_MAX
    ) -> None:
        if explanations_max < 1:
            raise ConfigError(f"explanations_max is {explanations_max}, it must be at least 1")
        self.history = history
        self._kept: list[Event] = []
        self._keep_events = keep_events
        self._explanations: OrderedDict[str, Explanation] = OrderedDict()
        self._explanations_max = explanations_max

    def feed(self, events: list[Event], moment: Moment) -> None:
        """Takes in what happened for a request."""
        if events:
            self.history.feed(events, moment)
            if self._keep_events:
                self._kept += events

    def take_events(self) -> list[Event]:
        """Events since the last call."""
        events, self._kept = self._kept, []
        return events

    def explain(
        self,
        level: Level,
        namespace: Namespace,
        prompt: Tokens,
        match: Match,
        moment: Moment,
        shortfalls: tuple[Shortfall, ...] = (),
    ) -> Explanation:
        """Explains a match; right after it, as the tree and the history change afterwards.

        Cost: SHA-256 over the prompt.
        """
        page = level.page_tokens
        whole = prompt[: len(prompt) // page * page]
        asked = Asked(moment, len(prompt), list(page_keys(namespace.seed(), whole, page)))
        explanation = replace(
            explain_match(asked, match, level.components, page, self.history), shortfalls=shortfalls
        )
        self._explanations[moment.request] = explanation
        if len(self._explanations) > self._explanations_max:
            self._explanations.popitem(last=False)
        return explanation

    @staticmethod
    def forgotten(explanation: Explanation) -> Forgotten | None:
        """What of a prompt the tree knew once and has forgotten; None for nothing (rule C-11)."""
        known, path = explanation.known_pages, explanation.path_pages
        left = [
            (stretch.state != EVICTED, stretch.first_page, story.component, stretch.state)
            for story in explanation.components
            for stretch in story.stretches
            if stretch.end_page > path and stretch.state not in (HELD, NEVER)
        ]
        if known <= path or not left:
            return None
        # What was evicted made the rest useless: it is the cause, whatever left before or after it.
        _, _, component, reason = min(left, key=lambda one: one[:2])
        return Forgotten(known * explanation.page_tokens, component, reason)

    def explanation(self, request: str) -> Explanation | None:
        """Why a request reused what it did; None when it is not known (any more)."""
        return self._explanations.get(request)
