"""Pages on their way into a tier: begin, then commit or abort (rules H-2 to H-4).

Between the two nothing that the arrival counts on can leave: a claim protects what the tier holds of the
path already, and the new places are private. Both are places, so whatever splits meanwhile does no harm.
"""

from __future__ import annotations

import numpy as np

from graftline.cache.level import Level
from graftline.cache.residency import Bitmap, needed, residency, runs_of
from graftline.key import Namespace, Tokens
from graftline.plan import Held, Lease, Slots

NOWHERE = -1


class Arrival:
    """What one boundary needs and a tier lacks, on its way there. Owned by the level's thread.

    Args:
        level: where it goes.
        namespace: of the path.
        tokens: whole pages up to the boundary; kept, not copied.

    Attributes:
        boundary: in pages: the end of `tokens`.
        start: boundary from which the path grows, in pages.
        places: component name to the slot taken for each page, `NOWHERE` for a page that is not to come;
            shape (boundary,). The caller fills these slots before `commit`.

    Raises:
        CapacityError: the tier cannot give the places; nothing was taken.
    """

    def __init__(self, level: Level, namespace: Namespace, tokens: Tokens) -> None:
        self.level = level
        self.namespace = namespace
        self.tokens = tokens
        self.boundary = len(tokens) // level.page_tokens
        self.places: dict[str, Slots] = {}
        found = residency(level, namespace, tokens)
        self.start = found.match.boundary_tokens // level.page_tokens
        self._leases: list[Lease] = [level.core.claim(found.match, found.match.path_tokens)]
        try:
            self._leases.append(level.core.lease(found.match))
            for spec in level.components:
                wanted = np.zeros(self.boundary, np.bool_)
                wanted[needed(spec, self.boundary, level.page_tokens)] = True
                wanted[: self.start] = False
                self._take(spec.name, wanted & ~found.bitmap(spec.name, self.boundary))
        except BaseException:
            self.abort()
            raise

    def _take(self, component: str, wanted: Bitmap) -> None:
        count = int(np.count_nonzero(wanted))
        if count:
            places = np.full(self.boundary, NOWHERE, np.int32)
            places[wanted] = self.level.allocate(component, count)
            self.places[component] = places

    def missing(self, component: str) -> Bitmap:
        """Which pages are to come; bool, shape (boundary,)."""
        places = self.places.get(component)
        return np.zeros(self.boundary, np.bool_) if places is None else places != NOWHERE

    def drop(self, component: str, failed: Bitmap) -> None:
        """Gives back the places of pages that did not come."""
        places = self.places[component]
        gone = failed & (places != NOWHERE)
        self.level.ledgers[component].give_back(places[gone])
        places[gone] = NOWHERE

    def commit(self, boundary: int | None = None) -> Lease:
        """What came becomes the tier's. Gives a lease at the end, which the caller releases.

        Args:
            boundary: where the path ends, in pages, when not all of it came.
        """
        end = self.boundary if boundary is None else max(boundary, self.start)
        page = self.level.page_tokens
        values = {name: runs(places[:end]) for name, places in self.places.items()}
        tokens = self.tokens[self.start * page : end * page]
        done = self.level.core.insert(self._leases[-1], tokens, values, move_lease=True)
        self._leases.pop()  # the insertion released it
        for name, adopted in done.adopted.items():
            for run in adopted:
                self.level.ledgers[name].adopt(run.slots)
                self.places[name][run.first_page : run.end_page] = NOWHERE
        self.abort()  # gives back what is left: duplicates, and what lies behind the end
        return done.lease

    def abort(self) -> None:
        """Gives everything back. May be called again."""
        for name, places in self.places.items():
            self.level.ledgers[name].give_back(places[places != NOWHERE])
        self.places = {}
        while self._leases:
            self.level.core.release(self._leases.pop())


def runs(places: Slots) -> list[Held]:
    """Places by page as runs of pages."""
    return [Held(first, places[first:end].copy()) for first, end in runs_of(places != NOWHERE)]
