"""Which slot holds each page of one request, for one component."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graftline.plan import Slots

ABSENT = -1


class PageTable:
    """Slots of a request's pages, and which of them are the request's own.

    Attributes:
        slots: slot of each absolute page, `ABSENT` where the request has none; shape (>= pages,).
        own: whether the slot is private to the request, same shape.
        pages: pages up to the last one ever set.
    """

    def __init__(self) -> None:
        self.slots: Slots = np.full(16, ABSENT, dtype=np.int32)
        self.own: npt.NDArray[np.bool_] = np.zeros(16, dtype=np.bool_)
        self.pages = 0
        self.first = 0

    def set(self, first_page: int, slots: Slots, *, own: bool) -> None:
        """Puts slots at consecutive pages from `first_page` on."""
        end = first_page + len(slots)
        while end > len(self.slots):
            self.slots = np.concatenate([self.slots, np.full(len(self.slots), ABSENT, dtype=np.int32)])
            self.own = np.concatenate([self.own, np.zeros(len(self.own), dtype=np.bool_)])
        self.slots[first_page:end] = slots
        self.own[first_page:end] = own
        self.pages = max(self.pages, end)

    def drop_before(self, page: int) -> Slots:
        """Forgets the pages before `page` and returns the private slots among them."""
        page = min(page, self.pages)
        if page <= self.first:
            return self.slots[:0]
        mine = self.slots[self.first : page][self.own[self.first : page]]
        self.slots[self.first : page] = ABSENT
        self.own[self.first : page] = False
        self.first = page
        return mine

    def private(self, first_page: int, end_page: int) -> list[tuple[int, Slots]]:
        """Runs of private pages in `[first_page, end_page)`, as (first page, slots)."""
        flags = self.own[first_page:end_page]
        edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
        starts, ends = edges[::2] + first_page, edges[1::2] + first_page
        return [(int(a), self.slots[a:b].copy()) for a, b in zip(starts, ends, strict=True)]
