"""Which pages of a key a tier holds, as bitmaps; the boundary over several tiers follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graftline.cache.level import Level
from graftline.components import ComponentSpec
from graftline.components.agree import deepest_boundary
from graftline.key import Namespace, Tokens
from graftline.plan import Held, Match

Bitmap = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Residency:
    """What one tier holds of a key.

    Attributes:
        match: of the whole key in that tier's tree.
        held: component name to the runs that it holds along the key, neighbours joined.
    """

    match: Match
    held: Mapping[str, tuple[Held, ...]]

    def bitmap(self, component: str, pages: int) -> Bitmap:
        """Which of the first `pages` pages are held; bool, shape (pages,)."""
        found = np.zeros(pages, np.bool_)
        for run in self.held.get(component, ()):
            found[run.first_page : run.end_page] = True
        return found

    def slots(self, component: str, pages: int) -> npt.NDArray[np.int32]:
        """Slot of each of the first `pages` pages, -1 where it is not held; shape (pages,)."""
        found = np.full(pages, -1, np.int32)
        for run in self.held.get(component, ()):
            last = min(run.end_page, pages)
            if run.first_page < last:
                found[run.first_page : last] = run.slots[: last - run.first_page]
        return found


def residency(level: Level, namespace: Namespace, tokens: Tokens) -> Residency:
    """Looks a key up in one tier; changes nothing. Cost: a match, and O(pages of the key)."""
    match = level.core.match(namespace, tokens)
    return Residency(match, level.core.holdings(match, match.path_tokens))


def joined(components: Sequence[ComponentSpec], pages: int, *tiers: Residency) -> list[Bitmap]:
    """Which of the first `pages` pages some tier holds: one bitmap a component, in their order."""
    return [np.logical_or.reduce([tier.bitmap(spec.name, pages) for tier in tiers]) for spec in components]


def joint_boundary(
    components: Sequence[ComponentSpec], page_tokens: int, bitmaps: Sequence[Bitmap], limit: int
) -> int:
    """Deepest boundary, in pages, on which all components agree; rule M-2 over joined bitmaps."""
    return deepest_boundary([spec.rule for spec in components], bitmaps, page_tokens, limit)


def needed(spec: ComponentSpec, boundary: int, page_tokens: int) -> slice:
    """Pages that a boundary needs of a component."""
    return slice(spec.rule.first_page(boundary, page_tokens), boundary)


def runs_of(flags: Bitmap) -> list[tuple[int, int]]:
    """Runs of set pages, as half-open (first, end)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
