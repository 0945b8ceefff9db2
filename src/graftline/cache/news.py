"""What a request tells others while it goes on: the watch, the tiers below, its session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graftline.cache.backup import Kept
from graftline.cache.history import Moment
from graftline.cache.inference import Inferred
from graftline.cache.sessions import OpenSession
from graftline.cache.shortfall import Reach, Shortfall, shortfalls
from graftline.cache.watch import Forgotten
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Match

if TYPE_CHECKING:
    from graftline.cache.prefix_cache import PrefixCache


@dataclass(frozen=True, slots=True)
class Ended:
    """What a request says of itself when it is complete.

    Attributes:
        path: prompt and answer, computed or not.
        prompt_tokens: length of the prompt.
        answer_tokens: length of the answer where it is not what follows the prompt, as in a replay.
        own: boundaries that it kept for its session alone (rule C-13).
        is_new: whether nobody was told of its last boundary yet.
    """

    path: Tokens
    prompt_tokens: int
    answer_tokens: int | None
    own: Sequence[int]
    is_new: bool

    @property
    def answer(self) -> int:
        """Length of the answer, for orders of eviction that age (rule P-8)."""
        return len(self.path) - self.prompt_tokens if self.answer_tokens is None else self.answer_tokens


class News:
    """One request's news.

    Args:
        cache: the request's.
        moment: names the request.
        namespace: of its values.
        session: who will come back; None where nobody is told.
        below: what the tiers below the device were asked for.
    """

    def __init__(
        self,
        cache: PrefixCache,
        moment: Moment,
        namespace: Namespace,
        session: OpenSession | None,
        below: Sequence[Reach | None] = (),
    ) -> None:
        self._cache = cache
        self._moment = moment
        self._namespace = namespace
        self._session = session
        self._inferred: Inferred | None = None
        self._below = below

    def begun(self, prompt: Tokens) -> None:
        """The request is open; where nobody is told whose it is, it is found out (rule S-9)."""
        if self._session is None and self._cache.inference is not None:
            self._inferred = self._cache.inference.begin(self._namespace, prompt)
            self._session = self._inferred.session

    def shortfalls(self, prompt: Tokens, match: Match) -> tuple[Shortfall, ...]:
        """What each tier below the device had of a prompt and the match has not (rule H-9)."""
        page = self._cache.page_tokens
        return shortfalls(self._below, match.boundary_tokens, (len(prompt) - 1) // page * page)

    def matched(self, prompt: Tokens, match: Match) -> Forgotten | None:
        """Explains a match while it can be known; what of the prompt was known once (rule C-11)."""
        watch = self._cache.watch
        if watch is None:
            return None
        self.happened()
        return watch.forgotten(
            watch.explain(
                self._cache.device,
                self._namespace,
                prompt,
                match,
                self._moment,
                self.shortfalls(prompt, match),
            )
        )

    def happened(self) -> None:
        """The trees may have changed for this request."""
        self._cache.tell_watch(self._moment)

    def kept(self, tokens: Tokens) -> None:
        """The device holds a boundary that the request keeps or reuses; `tokens` end there (rule H-5)."""
        if len(tokens) and self._cache.lower is not None:
            kept = Kept(self._namespace, tokens.copy(), self._moment.number, self._session)
            self._cache.lower.kept(kept)

    def completed(self, lease: Lease, ended: Ended) -> None:
        """The session's next turn will begin at the lease's boundary, in every tier (rule S-3)."""
        inferred, self._inferred = self._inferred, None
        name = self._session.name if self._session is not None else ""
        if inferred is not None and self._cache.inference is not None:
            name = inferred.name
            self._cache.inference.finish(inferred, self._namespace, ended.path, ended.prompt_tokens)
        session, device, path = self._session, self._cache.device, ended.path
        is_closed = session is not None and not session.register(device, lease, ended.answer)
        if lease.boundary_tokens and self._cache.lower is not None:
            tokens = path[: lease.boundary_tokens].copy()
            kept = Kept(self._namespace, tokens, self._moment.number, session, ended.answer)
            self._cache.lower.completed(kept, is_new=ended.is_new)
        if name and not is_closed:
            newest, boundary = self._cache.placement.newest, lease.boundary_tokens
            self._cache.lines.thin(name, self._namespace, lease, path[:boundary], ended.own, newest)

    def ended(self) -> None:
        """The request is over, completed or not."""
        if self._inferred is not None and self._cache.inference is not None:
            self._cache.inference.abandon(self._inferred)
            self._inferred = None
        self.happened()
