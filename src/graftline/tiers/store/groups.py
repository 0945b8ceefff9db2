"""How many pages go into one object, so that an object is worth a request.

Only prefix-closed components are grouped. With groups of G pages, the object at page end p holds the pages
`[floor((p - 1) / G) * G, p)`: whole groups end at multiples of G, and the end of a path inside a group has an
object of its own. Every page of a path is so in its whole group, or in that last object.
"""

from __future__ import annotations

from dataclasses import dataclass

from graftline.errors import ConfigError

TARGET_BYTES = 256 * 1024
GROUP_PAGES_MAX = 512


@dataclass(frozen=True, slots=True)
class Group:
    """The cut of a path into objects; fixed for a cache, and part of the layout digest.

    Attributes:
        pages: of a whole group.
    """

    pages: int

    def __post_init__(self) -> None:
        if not 1 <= self.pages <= GROUP_PAGES_MAX:
            raise ConfigError(f"a group has {self.pages} pages, it must have 1 to {GROUP_PAGES_MAX}")

    @classmethod
    def for_slots(cls, slot_bytes: int, target_bytes: int = TARGET_BYTES) -> Group:
        """As many pages as come nearest to `target_bytes`, at least 1 and at most `GROUP_PAGES_MAX`."""
        return cls(max(1, min(GROUP_PAGES_MAX, round(target_bytes / max(1, slot_bytes)))))

    def first_page(self, end_page: int) -> int:
        """First page of the object that ends at `end_page` (1 or more)."""
        return (end_page - 1) // self.pages * self.pages

    def ends(self, first_page: int, end_page: int) -> list[int]:
        """Ends of the objects that hold pages `[first_page, end_page)`: whole groups, then the last one."""
        if first_page >= end_page:
            return []
        whole = range(self.first_page(first_page + 1) + self.pages, end_page, self.pages)
        return [*whole, end_page]
