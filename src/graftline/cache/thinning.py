"""Which of its own checkpoints a session keeps: the newest few (rule C-13).

A conversation goes on from where it ended, or from a little before. What its earlier turns kept for the next
one has served, and takes a whole state each. Only what a request kept for its own session is thinned: replay
boundaries, ends of prompts and of answers. Branch points, marks and a grid are kept for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from graftline.cache.fingerprints import Fingerprints
from graftline.cache.level import Level
from graftline.key import Namespace, Tokens
from graftline.plan import Lease

Place = tuple[int, int]
"""A boundary in pages, and the fingerprint of the path before it."""


class Lines:
    """By session, the boundaries that its requests kept for it and that are not superseded.

    Args:
        device: the tier that is thinned.
        most: most sessions that are remembered; the one heard of longest ago is forgotten first.
    """

    def __init__(self, device: Level, most: int) -> None:
        self._device = device
        self._page = device.page_tokens
        self._stateful = [spec.name for spec in device.components if spec.rule.holds_state]
        self._most = most
        self._prints = Fingerprints(device.page_tokens)
        self._lines: OrderedDict[str, tuple[Place, ...]] = OrderedDict()

    def __len__(self) -> int:
        """Sessions that are remembered."""
        return len(self._lines)

    def thin(
        self,
        name: str,
        namespace: Namespace,
        lease: Lease,
        path: Tokens,
        kept: Iterable[int],
        newest: int,
    ) -> None:
        """Drops states on a session's line that newer ones supersede.

        Args:
            lease: at the path's end.
            path: tokens before it.
            kept: boundaries that the session's last request kept for it, in tokens.
            newest: how many the session keeps; 0 for all.
        """
        if not newest or not self._stateful:
            return
        for boundary in self.advance(name, namespace, path, kept, newest):
            for component in self._stateful:
                self._device.settle(self._device.core.drop(lease, component, boundary))

    def advance(
        self, name: str, namespace: Namespace, path: Tokens, kept: Iterable[int], newest: int
    ) -> Sequence[int]:
        """A session has come to the end of a path, and kept boundaries of it on the way.

        What an earlier turn kept on another path than this one is forgotten, and left to eviction.

        Args:
            kept: in tokens.
            newest: how many boundaries the session keeps.

        Returns:
            Boundaries of the path that are superseded, in tokens.
        """
        prints = self._prints.of(namespace, path).tolist()
        before = [place for place in self._lines.pop(name, ()) if _is_on(prints, place)]
        now = [(boundary // self._page, prints[boundary // self._page - 1]) for boundary in kept]
        line = sorted({*before, *now})
        self._lines[name] = tuple(line[-newest:])
        if len(self._lines) > self._most:
            self._lines.popitem(last=False)
        return [pages * self._page for pages, _ in line[:-newest]]

    def forget(self, names: Iterable[str]) -> None:
        """Sessions were closed."""
        for name in names:
            self._lines.pop(name, None)


def _is_on(prints: Sequence[int], place: Place) -> bool:
    pages, number = place
    return pages <= len(prints) and prints[pages - 1] == number
