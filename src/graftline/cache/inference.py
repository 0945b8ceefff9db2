"""Sessions of requests that name none, inferred from their prompts (rule S-9).

A client that keeps a conversation sends all of it again with each turn. So a prompt that goes on where an
earlier request ended is the next turn of the same conversation, whoever sent it:

    request    prompt P                      answer A
    next turn  P A ... or, where the client changes answers, P ...

For each finished request the ends of both paths are remembered. Nobody knows of a first request whether
another will follow, and most crowds are of single ones; so a session is opened with the second turn.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.cache.fingerprints import Fingerprints
from graftline.cache.level import Level
from graftline.cache.sessions import OpenSession, Session, SessionLimits
from graftline.key import Namespace, Tokens

FORKS_MAX = 4
"""An end from which so many requests went on is a start that many share, and nobody's end any more."""
ENDS_MAX = 16
"""Ends that are remembered of one conversation: those of its last turns."""


@dataclass(slots=True)
class End:
    """Where a request's path ended; what has more tokens and the same pages goes on from there.

    Attributes:
        name: the conversation.
        tokens: of the path.
        forks: how many requests went on from there.
    """

    name: str
    tokens: int
    forks: int = 0


@dataclass(frozen=True, slots=True)
class Inferred:
    """Whose turn a request is.

    Attributes:
        name: of the conversation; no user's name, as a part of it is drawn at random for each cache.
        session: opened in every tier; None for a first turn.
        begun_at: fingerprint of the end from which it goes on; None for a first turn.
    """

    name: str
    session: OpenSession | None
    begun_at: int | None


@dataclass(frozen=True, slots=True)
class Line:
    """What is known of a conversation: the fingerprints of its ends, and when it was heard of last."""

    ends: tuple[int, ...]
    last_s: float


class Inference:
    """Who goes on with which conversation.

    At most half as many conversations are remembered as sessions may be open; the one idle longest is
    forgotten, and its session closed.

    Args:
        levels: the tiers in which sessions are opened.
        page_tokens: tokens a page; ends are remembered at the last whole page.
        limits: those of all sessions.
    """

    def __init__(self, levels: Sequence[Level], page_tokens: int, limits: SessionLimits) -> None:
        self._levels = levels
        self._page = page_tokens
        self._most = max(1, limits.most // 2)
        self._ttl_s = limits.ttl_s
        self._now_s = 0.0
        self._prints = Fingerprints(page_tokens)
        self._origin = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._ends: dict[int, End] = {}
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._running: Counter[str] = Counter()

    def __len__(self) -> int:
        """Conversations that are remembered."""
        return len(self._lines)

    @property
    def ends(self) -> int:
        """Ends that are remembered, of all conversations."""
        return len(self._ends)

    def begin(self, namespace: Namespace, prompt: Tokens) -> Inferred:
        """Whose turn a request is. Cost: O(tokens), one pass of numpy, and a look-up a page."""
        number = self._continued(self._prints.of(namespace, prompt).tolist(), len(prompt))
        if number is None:
            inferred = Inferred(f"inferred {self._origin} {next(self._numbers)}", None, None)
        else:
            name = self._ends[number].name
            inferred = Inferred(name, OpenSession(self._levels, Session(name)), number)
        self._running[inferred.name] += 1
        return inferred

    def finish(self, inferred: Inferred, namespace: Namespace, path: Tokens, prompt_tokens: int) -> None:
        """A request has ended; its next turn may go on from its path, or from its prompt alone."""
        self.abandon(inferred)
        self._count_fork(inferred)
        prints = self._prints.of(namespace, path)
        ends = list(self._lines.pop(inferred.name, Line((), 0.0)).ends)
        for tokens in (len(path), prompt_tokens):
            if tokens >= self._page:
                number = int(prints[tokens // self._page - 1])
                self._ends[number] = End(inferred.name, tokens)
                ends.append(number)
        for number in ends[:-ENDS_MAX]:
            self._forget_end(number, inferred.name)
        if not ends:
            return
        self._lines[inferred.name] = Line(tuple(ends[-ENDS_MAX:]), self._now_s)
        if len(self._lines) > self._most:
            self._forget(next(iter(self._lines)))

    def abandon(self, inferred: Inferred) -> None:
        """A request is over; where it was aborted, whoever goes on from where it began is the next turn."""
        self._running[inferred.name] -= 1
        if not self._running[inferred.name]:
            del self._running[inferred.name]

    def set_time(self, now_s: float) -> None:
        """Forgets conversations that are idle for longer than the time-to-live."""
        self._now_s = max(self._now_s, now_s)
        while self._lines:
            name, line = next(iter(self._lines.items()))
            if self._now_s - line.last_s <= self._ttl_s:
                return
            self._forget(name)

    def _continued(self, prints: Sequence[int], tokens: int) -> int | None:
        """The deepest end on a path with fewer tokens; None where somebody goes on from it just now."""
        found = (number for number in reversed(prints) if number in self._ends)
        number = next((number for number in found if self._ends[number].tokens < tokens), None)
        return None if number is None or self._ends[number].name in self._running else number

    def _count_fork(self, inferred: Inferred) -> None:
        end = None if inferred.begun_at is None else self._ends.get(inferred.begun_at)
        if inferred.begun_at is None or end is None:
            return
        end.forks += 1
        if end.forks >= FORKS_MAX:
            del self._ends[inferred.begun_at]

    def _forget_end(self, number: int, name: str) -> None:
        """An end that another conversation reached later is that one's."""
        if number in self._ends and self._ends[number].name == name:
            del self._ends[number]

    def _forget(self, name: str) -> None:
        for number in self._lines.pop(name).ends:
            self._forget_end(number, name)
        for level in self._levels:
            level.core.close_session(name)
