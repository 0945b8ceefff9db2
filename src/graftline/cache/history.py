"""What became of cached pages, remembered after the tree has forgotten them.

A tree keeps no trace of a path that left it. A history is fed with the tree's events, each time with the
request for which they happened, and tells of any page when it was stored, when it left, why, and for whom.
It knows pages by their chained keys (rule K-4), so it needs no tree to be asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graftline.errors import ConfigError
from graftline.plan import Event, Tier

DEFAULT_ENTRIES_MAX = 200_000
NEVER, HELD = "never stored", "held"


@dataclass(frozen=True, slots=True)
class Moment:
    """The request for which something happened.

    Attributes:
        request: its name.
        number: grows from one request to the next.
        session: its conversation; empty for none.
        time_s: when, by the clock of whoever feeds the history.
    """

    request: str
    number: int
    session: str = ""
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What happened last to one component's value on one page, in one tier.

    Attributes:
        stored: for whom it was stored; None when that was before the history began, or is forgotten.
        removed: for whom it had to leave, None while it is held.
        reason: why it left, as in `Event.reason`; empty while it is held.
    """

    stored: Moment | None
    removed: Moment | None
    reason: str

    @property
    def state(self) -> str:
        """`held`, or the reason for which it left."""
        return self.reason if self.removed else HELD


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive pages with one fate; None where the history knows of no value.

    `end_page` is one past the last page.
    """

    first_page: int
    end_page: int
    fate: Fate | None

    @property
    def state(self) -> str:
        """`held`, the reason for which it left, or `never stored`."""
        return self.fate.state if self.fate else NEVER


class History:
    """Remembers the fates of pages, the newest ones.

    Args:
        entries_max: pages remembered of each component in each tier; about 250 bytes each. Where there are
            more, the one whose last event is oldest is forgotten.

    Attributes:
        forgotten: entries dropped so far; when it is 0, a page without a fate was never stored.
    """

    def __init__(self, entries_max: int = DEFAULT_ENTRIES_MAX) -> None:
        if entries_max < 1:
            raise ConfigError(f"entries_max is {entries_max}, it must be at least 1")
        self.entries_max = entries_max
        self.forgotten = 0
        self._fates: dict[tuple[str, Tier], OrderedDict[bytes, Fate]] = {}

    def __len__(self) -> int:
        """Pages remembered, of all components and tiers."""
        return sum(len(fates) for fates in self._fates.values())

    def feed(self, events: Iterable[Event], moment: Moment) -> None:
        """Takes events in, in order; they happened for the request of `moment`. Cost: O(their pages)."""
        for event in events:
            fates = self._fates.setdefault((event.component, event.tier), OrderedDict())
            if event.kind == "stored":
                self._stored(fates, event, moment)
            else:
                self._removed(fates, event, moment)
            while len(fates) > self.entries_max:
                fates.popitem(last=False)
                self.forgotten += 1

    def fates(self, component: str, tier: Tier, page_keys: Sequence[bytes]) -> list[Fate | None]:
        """The fate of each page; None where nothing is known."""
        found: Mapping[bytes, Fate] = self._fates.get((component, tier), {})
        return [found.get(key) for key in page_keys]

    def _stored(self, fates: OrderedDict[bytes, Fate], event: Event, moment: Moment) -> None:
        fate = Fate(moment, None, "")
        for key in event.page_keys:
            fates[key] = fate
            fates.move_to_end(key)

    def _removed(self, fates: OrderedDict[bytes, Fate], event: Event, moment: Moment) -> None:
        made: dict[int, Fate] = {}  # pages that came together share one fate when they leave together
        for key in event.page_keys:
            before = fates.get(key)
            stored = before.stored if before else None
            if id(stored) not in made:
                made[id(stored)] = Fate(stored, moment, event.reason)
            fates[key] = made[id(stored)]
            fates.move_to_end(key)


def stretches(fates: Sequence[Fate | None]) -> tuple[Stretch, ...]:
    """Pages from 0 on, those of one fate together; nothing for no page."""
    changes = [page for page in range(1, len(fates)) if fates[page] != fates[page - 1]]
    ends = [0, *changes, len(fates)] if fates else []
    return tuple(Stretch(first, end, fates[first]) for first, end in pairwise(ends))
