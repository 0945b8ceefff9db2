"""What of one path a store holds, in few batched questions; and which objects to read then.

Nothing here performs I/O: `ask` gives keys, the caller asks the store whether they exist, `answer` takes
its word.

    1. whole groups of the prefix-closed components, in the order of the path, up to the first missing one
    2. the ends inside the group where that left off, deepest first
    3. the boundary objects of the other components, deepest first, no deeper than 1 and 2 allow,
       until a boundary is agreed that no later answer can beat

Pages that are known elsewhere (device, host) are not asked for. The number of keys in a call and in all is
bounded; when the bound ends the search before its answer, `gave_up` says so. Everything is counted in pages.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graftline.components import ReuseRule
from graftline.components.agree import Bitmap, deepest_boundary
from graftline.errors import ConfigError
from graftline.tiers.store.base import Key
from graftline.tiers.store.groups import Group
from graftline.tiers.store.objects import ObjectLayout, ObjectPlace, Path

KEYS_A_CALL = 256
KEYS_MAX = 4096
_FIRST_BOUNDARIES = 16

Question: TypeAlias = tuple[int, int]
"""Index of a component and the end page of one of its objects."""


@dataclass(frozen=True, slots=True)
class StoredComponent:
    """How one component lies in a store.

    Attributes:
        rule: where its values may be reused.
        layout: what its objects share.
        group: the cut into objects if the rule is prefix-closed, else not used.
    """

    rule: ReuseRule
    layout: ObjectLayout
    group: Group

    def first_page(self, end_page: int) -> int:
        """First page of the object that ends at `end_page`; `end_page` when nothing is kept there."""
        if self.rule.prefix_closed:
            return self.group.first_page(end_page)
        return self.rule.first_page(end_page, self.layout.page_tokens)

    def ends(self, first_page: int, end_page: int) -> list[int]:
        """Ends of the objects to write for boundary `end_page` if pages from `first_page` on are new."""
        if self.rule.prefix_closed:
            return self.group.ends(first_page, end_page)
        return [end_page] if self.first_page(end_page) < end_page else []


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """One object to read.

    Attributes:
        component: its index.
        key: its name.
        place: its pages; row i is page `place.first_page + i`.
        object_bytes: its length.
    """

    component: int
    key: Key
    place: ObjectPlace
    object_bytes: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a search.

    Attributes:
        floor_pages: deepest boundary that is valid without the store; only deeper ones are of use.
        limit_pages: deepest boundary asked for; None for the whole path.
        keys_a_call: most keys in one question.
        keys_max: most keys in all questions together.
    """

    floor_pages: int = 0
    limit_pages: int | None = None
    keys_a_call: int = KEYS_A_CALL
    keys_max: int = KEYS_MAX


class Lookup:
    """A search for the deepest boundary of a path over the store and what is known elsewhere.

    Args:
        components: in the order of the cache.
        path: to look up; its keys name the objects.
        elsewhere: per component the pages that need no store, bool, shape (pages,) each; those of a
            prefix-closed component are a leading run (rule T-7).
        bounds: of the search.
    """

    def __init__(
        self,
        components: Sequence[StoredComponent],
        path: Path,
        elsewhere: Sequence[Bitmap],
        bounds: Bounds | None = None,
    ) -> None:
        bounds = bounds or Bounds()
        if bounds.keys_a_call < 1:
            raise ConfigError(f"keys_a_call is {bounds.keys_a_call}, it must be at least 1")
        pages = len(path.keys)
        if len(elsewhere) != len(components) or any(len(bitmap) != pages for bitmap in elsewhere):
            raise ConfigError(f"{len(components)} components need as many bitmaps of {pages} pages")
        self._components = components
        self._path = path
        self._elsewhere = elsewhere
        self._bounds = bounds
        self._limit = pages if bounds.limit_pages is None else min(pages, bounds.limit_pages)
        self._ends: list[list[int]] = [[] for _ in components]  # of the objects that exist, in order
        self.bitmaps: list[Bitmap] = [np.zeros(pages, dtype=np.bool_) for _ in components]
        """Pages that the store says it has, one a component. May be out of date by the time of the read."""
        self.keys_asked = 0
        self.gave_up = False
        self._questions = self._search()
        self._asked: list[Question] = []

    def ask(self) -> list[Key]:
        """The next keys, at most `keys_a_call`; empty when there is nothing more to ask."""
        self._asked = next(self._questions, [])
        left = self._bounds.keys_max - self.keys_asked
        if len(self._asked) > left:
            self._asked, self.gave_up = self._asked[:left], True
        self.keys_asked += len(self._asked)
        return [self._key(component, end) for component, end in self._asked]

    def answer(self, there: Sequence[bool]) -> None:
        """Whether each key of the last `ask` exists."""
        for (component, end), exists in zip(self._asked, there, strict=True):
            if exists:
                insort(self._ends[component], end)
                self.bitmaps[component][self._components[component].first_page(end) : end] = True

    def forget(self, read: ObjectRead) -> None:
        """Takes back an object that was not there, or not good, when it was read."""
        component, end = read.component, read.place.first_page + self._pages(read)
        self._ends[component].remove(end)
        self.bitmaps[component][:] = False
        for end in self._ends[component]:
            self.bitmaps[component][self._components[component].first_page(end) : end] = True

    def boundary_pages(self) -> int:
        """Deepest boundary, in pages, by what is known now."""
        rules = [component.rule for component in self._components]
        joined = [self._joined(index) for index in range(len(rules))]
        return deepest_boundary(rules, joined, self._path.page_tokens, self._limit)

    def reads(self, boundary_pages: int) -> list[ObjectRead]:
        """Objects that hold the pages that the boundary needs and that are not elsewhere, shallow ones first.

        Pages that are neither elsewhere nor in the store are left out: only a boundary of `boundary_pages`
        is sure to need none of those.
        """
        reads: list[ObjectRead] = []
        for index, component in enumerate(self._components):
            first = component.rule.first_page(boundary_pages, self._path.page_tokens)
            wanted = ~self._elsewhere[index][:boundary_pages] & self.bitmaps[index][:boundary_pages]
            wanted[:first] = False
            reads += reversed([self._read(index, end) for end in self._cover(index, wanted)])
        return reads

    def _cover(self, index: int, wanted: Bitmap) -> Iterator[int]:
        """Ends of objects that cover the wanted pages. The nearest end reaches back furthest (rule R-2)."""
        ends, component = self._ends[index], self._components[index]
        missing = np.flatnonzero(wanted)
        while len(missing):
            end = ends[bisect_right(ends, int(missing[-1]))]
            yield end
            missing = missing[: np.searchsorted(missing, component.first_page(end))]

    def _read(self, index: int, end: int) -> ObjectRead:
        component = self._components[index]
        first = component.first_page(end)
        size = component.layout.object_bytes(end - first)
        return ObjectRead(index, self._key(index, end), self._path.place(first, end), size)

    def _pages(self, read: ObjectRead) -> int:
        return len(read.place.tokens) // self._path.page_tokens

    def _key(self, component: int, end: int) -> Key:
        return self._components[component].layout.key(self._path.keys[end - 1])

    def _joined(self, component: int) -> Bitmap:
        return self._elsewhere[component] | self.bitmaps[component]

    def _depth(self, component: int) -> int:
        """Pages from the start of the path that are somewhere, without a gap, up to the limit."""
        gaps = np.flatnonzero(~self._joined(component)[: self._limit])
        return int(gaps[0]) if len(gaps) else self._limit

    def _search(self) -> Generator[list[Question], None, None]:
        """Looks at the answers between the questions."""
        depth = self._limit
        for index, component in enumerate(self._components):
            if component.rule.prefix_closed:
                yield from self._ask_groups(index, depth)
                yield from self._ask_inside(index, depth)
                depth = min(depth, self._depth(index))
        yield from self._ask_boundaries(depth)

    def _ask_groups(self, index: int, depth: int) -> Generator[list[Question], None, None]:
        """Whole groups from the first gap on, in the order of the path; one may end beyond `depth`."""
        group, known = self._components[index].group, self._joined(index)
        first = group.first_page(self._depth(index) + 1)
        last = min(len(self._path.keys), group.first_page(depth) + group.pages)
        ends = [
            end
            for end in range(first + group.pages, last + 1, group.pages)
            if not known[end - group.pages : end].all()
        ]
        for part in self._parts([(index, end) for end in ends]):
            yield part
            if self._depth(index) < min(depth, part[-1][1]):
                return

    def _ask_inside(self, index: int, depth: int) -> Generator[list[Question], None, None]:
        """Ends inside the group of the first gap, deepest first, until one is there."""
        first_gap = self._depth(index)
        if first_gap >= depth:
            return
        group = self._components[index].group
        last = min(len(self._path.keys), group.first_page(first_gap + 1) + group.pages - 1)
        for part in self._parts([(index, end) for end in range(last, first_gap, -1)]):
            yield part
            if self._depth(index) > first_gap:
                return

    def _parts(self, questions: list[Question]) -> Iterator[list[Question]]:
        """Cut to the size of a call."""
        step = self._bounds.keys_a_call
        return (questions[at : at + step] for at in range(0, len(questions), step))

    def _ask_boundaries(self, depth: int) -> Generator[list[Question], None, None]:
        """All other components at once; ever more boundaries a call, as most hits are near the end."""
        others = [i for i, component in enumerate(self._components) if not component.rule.prefix_closed]
        if not others:
            return
        most = max(1, self._bounds.keys_a_call // len(others))
        boundary, step = depth, min(_FIRST_BOUNDARIES, most)
        while boundary > (floor := max(self._bounds.floor_pages, self.boundary_pages())):
            least = max(floor, boundary - step)
            ends = range(boundary, least, -1)
            yield from self._parts([(i, end) for end in ends for i in others if self._useful(i, end)])
            boundary, step = least, min(2 * step, most)

    def _useful(self, index: int, end: int) -> bool:
        """Whether an object would add a page to what is known."""
        first = self._components[index].first_page(end)
        return first < end and not self._joined(index)[first:end].all()
