"""From the units of a trace to pages, and from pages to what a tree core is given.

**Pages.** A page gets a number. Blocks as long as a page give their own ids; a longer block is cut into
pages, numbered by the block and the place in it; shorter blocks and tokens are put together, and each
distinct run of them gets the next free number. All of it depends on the trace alone.

**Keys.** A tree needs to know of two pages only whether they are equal, and of a boundary how many pages
lie before it. So a replay does not spell out the tokens of a page: two words stand for it, the two halves
of its number, and the core is told that a page has `KEY_TOKENS` = 2 tokens. One word would not do: whether
a prompt ends at a page or behind it decides what an exact repeat may reuse (rule M-3), and only pages
of two words or more have an inside. Rules of reuse are scaled to match (`compositions.py`). That the reuse
is the same as with all tokens spelled out is shown by `tests/replay/test_simulate.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graftline.errors import ConfigError
from graftline.key import Tokens
from graftline.replay.requests import NO_IDS, Ids, ReplayRequest, Requests

KEY_TOKENS = 2
DEFAULT_PAGE_TOKENS = 16
UNNAMED = 1 << 62
"""Pages from here on are those of answers that the trace does not name; nothing else gets there."""


@dataclass(frozen=True, slots=True)
class PagedRequest:
    """A request in pages.

    Attributes:
        request: what the trace said.
        pages: whole pages of the prompt, u64.
        answer: whole pages after those, up to the end of the answer, u64.
        has_rest: whether the prompt goes on behind its last whole page.
    """

    request: ReplayRequest
    pages: Ids
    answer: Ids
    has_rest: bool

    @property
    def limit_pages(self) -> int:
        """Most pages that the request may reuse: one token at least is left to compute (rule M-3)."""
        return len(self.pages) if self.has_rest else max(0, len(self.pages) - 1)

    @property
    def prompt_slots(self) -> int:
        """Pages that a prefix-closed component needs for the prompt, the begun one included."""
        return len(self.pages) + int(self.has_rest)

    @property
    def occupied_pages(self) -> int:
        """Pages that a prefix-closed component needs for it at once, the begun one included."""
        return len(self.pages) + max(len(self.answer), int(self.has_rest))


class Pager:
    """Cuts requests into pages.

    Args:
        page_tokens: tokens a page; 0 takes the trace's block, or 16 where the trace has tokens.
        unnamed_answers: whether an answer whose content the trace does not name takes pages too, which no
            later request will find.
    """

    def __init__(self, page_tokens: int = 0, *, unnamed_answers: bool = False) -> None:
        if page_tokens < 0:
            raise ConfigError(f"page_tokens is {page_tokens}, it must not be negative")
        self.page_tokens = page_tokens
        self.unnamed_answers = unnamed_answers
        self._unit_tokens = 0
        self._numbers: dict[bytes, int] = {}
        self._unnamed = 0

    def pages(self, request: ReplayRequest) -> PagedRequest:
        """One request in pages.

        Raises:
            ConfigError: the trace's blocks and the page do not divide each other, or blocks differ in length.
        """
        if self.page_tokens == 0:
            self.page_tokens = DEFAULT_PAGE_TOKENS if request.unit_tokens == 1 else request.unit_tokens
        if self._unit_tokens not in (0, request.unit_tokens):
            raise ConfigError(
                f"request '{request.ident}' has blocks of {request.unit_tokens} tokens, those before have"
                f" {self._unit_tokens}"
            )
        self._unit_tokens = request.unit_tokens
        ids = request.prompt_ids
        if len(request.answer_ids):
            ids = np.concatenate([ids, request.answer_ids])
        path = self._cut(ids, request)
        named = len(request.prompt_ids) * request.unit_tokens // self.page_tokens
        whole = min(request.prompt_tokens // self.page_tokens, named)
        is_named = len(request.answer_ids) > 0
        answer = path[whole:] if is_named else self._unnamed_answer(request, whole)
        has_rest = request.prompt_tokens > whole * self.page_tokens
        return PagedRequest(request, path[:whole], answer, has_rest)

    def _cut(self, ids: Ids, request: ReplayRequest) -> Ids:
        unit, page = request.unit_tokens, self.page_tokens
        if unit == page:
            return ids
        if unit % page == 0:
            parts = unit // page
            cut: Ids = np.repeat(ids * np.uint64(parts), parts)
            cut += np.tile(np.arange(parts, dtype=np.uint64), len(ids))
            return cut
        if page % unit == 0:
            return self._join(ids, page // unit)
        raise ConfigError(
            f"request '{request.ident}' has blocks of {unit} tokens, which do not fit pages of {page}",
            hint="choose a page size that divides the block, or is a multiple of it",
        )

    def _join(self, ids: Ids, units: int) -> Ids:
        """Numbers runs of `units` units in the order in which they are first met."""
        pages = len(ids) // units
        data, width = ids[: pages * units].tobytes(), units * ids.itemsize
        numbers = self._numbers
        return np.fromiter(
            (numbers.setdefault(data[i * width : (i + 1) * width], len(numbers)) for i in range(pages)),
            dtype=np.uint64,
            count=pages,
        )

    def _unnamed_answer(self, request: ReplayRequest, whole: int) -> Ids:
        count = (request.prompt_tokens + request.answer_tokens) // self.page_tokens - whole
        if not self.unnamed_answers or count <= 0:
            return NO_IDS
        first = self._unnamed
        self._unnamed += count
        ids: Ids = np.arange(UNNAMED + first, UNNAMED + self._unnamed, dtype=np.uint64)
        return ids


class PagedTrace:
    """A trace in pages; goes through its file again for each run, or keeps the pages where they are few.

    Args:
        requests: the trace.
        page_tokens: as for `Pager`.
        unnamed_answers: as for `Pager`.
        kept_pages_max: pages that may be kept in memory, 8 bytes each.
    """

    def __init__(
        self,
        requests: Requests,
        page_tokens: int = 0,
        *,
        unnamed_answers: bool = False,
        kept_pages_max: int = 30_000_000,
    ) -> None:
        self.name = requests.name
        self._requests = requests
        self._pager = Pager(page_tokens, unnamed_answers=unnamed_answers)
        self._kept: list[PagedRequest] | None = None
        self._kept_pages_max = kept_pages_max

    @property
    def page_tokens(self) -> int:
        """Tokens a page; 0 before the first request was seen when the trace decides."""
        return self._pager.page_tokens

    @property
    def empty_prompts(self) -> int:
        """Requests without a token that the last pass over the file left out."""
        return self._requests.empty_prompts

    def __iter__(self) -> Iterator[PagedRequest]:
        """The requests, from the first one."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[PagedRequest] | None = []
        pages = 0
        self._pager = Pager(self._pager.page_tokens, unnamed_answers=self._pager.unnamed_answers)
        for request in self._requests:
            paged = self._pager.pages(request)
            pages += len(paged.pages) + len(paged.answer)
            if kept is not None:
                kept.append(paged)
                if pages > self._kept_pages_max:
                    kept = None
            yield paged
        self._kept = kept


def key_words(pages: Ids) -> Tokens:
    """Two u32 words a page, the low half of its number first."""
    return np.ascontiguousarray(pages, dtype="<u8").view("<u4").astype(np.uint32, copy=False)


def prompt_key(paged: PagedRequest) -> Tokens:
    """The prompt as a core is given it: its whole pages, and one word for a rest; at least one word.

    The rest is the first word of the page that the answer will complete, if it does.
    """
    if not paged.has_rest:
        return key_words(paged.pages)
    begun = key_words(paged.answer[:1])[:1] if len(paged.answer) else np.zeros(1, dtype=np.uint32)
    return np.concatenate([key_words(paged.pages), begun])


def answer_key(paged: PagedRequest) -> Tokens:
    """The words that follow on `prompt_key` up to the end of the answer's last whole page."""
    words = key_words(paged.answer)
    return words[1:] if paged.has_rest else words
