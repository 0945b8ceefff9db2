"""What a request tells others while it goes on: the watch, the tiers below, its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graftline.cache.backup import Kept
from graftline.cache.history import Moment
from graftline.cache.sessions import OpenSession
from graftline.cache.watch import Forgotten
from graftline.key import Namespace, Tokens
from graftline.plan import Lease, Match

if TYPE_CHECKING:
    from graftline.cache.prefix_cache import PrefixCache


class News:
    """One request's news.

    Args:
        cache: the request's.
        moment: names the request.
        namespace: of its values.
        session: who will come back; None for nobody in particular.
    """

    def __init__(
        self, cache: PrefixCache, moment: Moment, namespace: Namespace, session: OpenSession | None
    ) -> None:
        self._cache = cache
        self._moment = moment
        self._namespace = namespace
        self._session = session

    def matched(self, prompt: Tokens, match: Match) -> Forgotten | None:
        """Explains a match while it can be known; what of the prompt was known once (rule C-11)."""
        watch = self._cache.watch
        if watch is None:
            return None
        self.happened()
        return watch.forgotten(
            watch.explain(self._cache.device, self._namespace, prompt, match, self._moment)
        )

    def happened(self) -> None:
        """The trees may have changed for this request."""
        self._cache.tell_watch(self._moment)

    def kept(self, tokens: Tokens) -> None:
        """The device holds a boundary that the request keeps or reuses; `tokens` end there (rule H-5)."""
        if len(tokens) and self._cache.lower is not None:
            kept = Kept(self._namespace, tokens.copy(), self._moment.number, self._session)
            self._cache.lower.kept(kept)

    def completed(self, lease: Lease) -> None:
        """The session's next turn will begin at the lease's boundary (rule S-3)."""
        if self._session is not None:
            self._session.register(self._cache.device, lease)
