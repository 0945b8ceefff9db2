"""What one step writes and reads of one attention component, worked out once for all its layers.

KV is gathered page by page, for all rows of the step in one call. Rows of one group whose lengths are
alike form a span, padded to the pages of its longest row; a span is one attention call. A span of one
row is cut to exactly the tokens that the row can see, so that a single decode row needs no mask.

A padded span also reads places that its rows have not filled, and masks them. They hold zeros or the
row's own tokens, never leftovers of another sequence: a page that a row begins and does not fill is
zeroed first, and shorter rows are padded with a page of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from graftline.components import Chunk, ReuseRule, Window
from graftline.engine.batch import Row
from graftline.errors import ConfigError

# Rows share a padded call while the longest has at most twice the pages of the shortest, or few pages.
ALWAYS_TOGETHER_TOKENS = 256


@dataclass(slots=True)
class KvSpan:
    """Neighbouring rows of equal length that run as one attention call.

    Attributes:
        first_token: place of the span's first new token in the packed row.
        rows, row_tokens: number of rows and new tokens of each.
        first_kv: where the span's KV begins in what the layer's update returns, in tokens.
        row_kv: tokens of KV per row.
        key_starts: absolute position of each row's first KV token.
        query_starts: absolute position of each row's first new token.
        starts: the same two as a tensor on the device, shape (2, rows): keys, queries.
        rule: what the component's queries can see.
    """

    first_token: int
    rows: int
    row_tokens: int
    first_kv: int
    row_kv: int
    key_starts: tuple[int, ...]
    query_starts: tuple[int, ...]
    starts: torch.Tensor
    rule: ReuseRule
    _masks: dict[torch.dtype, torch.Tensor] = field(default_factory=dict)
    _distances: torch.Tensor | None = None

    @property
    def tokens(self) -> int:
        """New tokens of all rows together."""
        return self.rows * self.row_tokens

    @property
    def sees_all(self) -> bool:
        """Whether every query sees every token of KV, so that no mask is needed."""
        return self.rows == 1 and self.row_tokens == 1

    @property
    def is_causal(self) -> bool:
        """Whether the mask is the plain lower triangle."""
        if self.row_kv != self.row_tokens or any(self.key_starts):
            return False
        if isinstance(self.rule, Window):
            return self.row_tokens <= self.rule.lookback_tokens + 1
        return not isinstance(self.rule, Chunk) or self.row_tokens <= self.rule.chunk_tokens

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Additive mask of shape (rows, 1, row_tokens, row_kv): 0 where a query may look, else -inf."""
        if dtype not in self._masks:
            self._masks[dtype] = self._make_mask(dtype)
        return self._masks[dtype]

    def distances(self) -> torch.Tensor:
        """How far each query is behind each key, shape (rows, 1, row_tokens, row_kv), int64."""
        if self._distances is None:
            queries, keys = self._positions()
            self._distances = (queries - keys)[:, None]
        return self._distances

    def _positions(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Absolute positions of queries, (rows, row_tokens, 1), and keys, (rows, 1, row_kv)."""
        device = self.starts.device
        keys = self.starts[0][:, None, None] + torch.arange(self.row_kv, device=device)
        queries = self.starts[1][:, None] + torch.arange(self.row_tokens, device=device)
        return queries[:, :, None], keys

    def _make_mask(self, dtype: torch.dtype) -> torch.Tensor:
        queries, keys = self._positions()
        visible = keys <= queries
        if isinstance(self.rule, Window):
            visible &= keys >= queries - self.rule.lookback_tokens
        elif isinstance(self.rule, Chunk):
            visible &= keys // self.rule.chunk_tokens == queries // self.rule.chunk_tokens
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, float("-inf"))[:, None]


@dataclass(frozen=True, slots=True)
class ComponentStep:
    """Places that one step touches in one component.

    Attributes:
        write: place `slot * page_tokens + offset` of each new token, shape (total_tokens,).
        begun: slots of pages that a row begins and does not fill; empty when there are none.
        pages: slots to gather, in the order of the spans; None when the new tokens are all there is.
        trim: tokens of the gathered pages to keep, `(first, count)`; None keeps all.
        spans: the attention calls.
    """

    write: torch.Tensor
    begun: torch.Tensor
    pages: torch.Tensor | None
    trim: tuple[int, int] | None
    spans: tuple[KvSpan, ...]


def first_visible(rule: ReuseRule, position: int) -> int:
    """First position that a query at `position` can see."""
    if isinstance(rule, Window):
        return max(0, position - rule.lookback_tokens)
    if isinstance(rule, Chunk):
        return position // rule.chunk_tokens * rule.chunk_tokens
    return 0


class ComponentReads:
    """Numpy half of one component's step: collects index arrays, then builds a `ComponentStep`.

    `runs` are the groups `(first, stop)` of rows in packed order.
    """

    def __init__(
        self,
        name: str,
        rule: ReuseRule,
        page_tokens: int,
        rows: Sequence[Row],
        runs: Sequence[tuple[int, int]],
    ) -> None:
        self.rule = rule
        self.page_tokens = page_tokens
        self.rows = rows
        self._held = [self._pages_of(name, row) for row in rows]
        self.spans = [span for first, stop in runs for span in self._split(first, stop)]
        self.direct = len(runs) == 1 and rows[0].start == 0
        self.arrays = {f"{name}.write": self._write(), f"{name}.begun": self._begun()}
        self.name = name
        if not self.direct:
            self.arrays[f"{name}.pages"] = self._gather()
        for number, (first, stop) in enumerate(self.spans):
            self.arrays[f"{name}.{number}"] = self._starts(first, stop).ravel()

    def build(self, index: dict[str, torch.Tensor]) -> ComponentStep:
        """The step of this component, its tensors taken from `index`."""
        spans, first_token, first_kv = [], 0, 0
        single = len(self.rows) == 1
        trim = None
        for number, (first, stop) in enumerate(self.spans):
            count, row = stop - first, self.rows[first]
            key_starts, query_starts = self._starts(first, stop).tolist()
            row_kv = len(row.tokens) if self.direct else self._span_pages(first, stop) * self.page_tokens
            skip = 0
            section = count * row_kv
            if count == 1 and not self.direct:
                skip = key_starts[0] - self._first_page(row) * self.page_tokens
                row_kv = row.end - key_starts[0]
                trim = (skip, row_kv) if single else None
            spans.append(
                KvSpan(
                    first_token=first_token,
                    rows=count,
                    row_tokens=len(row.tokens),
                    first_kv=0 if single else first_kv + skip,
                    row_kv=row_kv,
                    key_starts=tuple(key_starts),
                    query_starts=tuple(query_starts),
                    starts=index[f"{self.name}.{number}"].view(2, count),
                    rule=self.rule,
                )
            )
            first_token += count * len(row.tokens)
            first_kv += section
        write, begun = index[f"{self.name}.write"], index[f"{self.name}.begun"]
        return ComponentStep(write, begun, index.get(f"{self.name}.pages"), trim, tuple(spans))

    def _first_page(self, row: Row) -> int:
        return first_visible(self.rule, row.start) // self.page_tokens

    def _pages_of(self, name: str, row: Row) -> np.ndarray:
        """Slots of the pages from the first that the row can see to its last, checked to be held."""
        first, stop = self._first_page(row), -(-row.end // self.page_tokens)
        table = row.tables[name]
        pages = table[first:stop]
        if len(pages) < stop - first or pages.min() < 0:
            raise ConfigError(
                f"component '{name}': a row of tokens {row.start} to {row.end} lacks one of the pages "
                f"{first} to {stop}",
                hint="give a slot for every page that the rule needs and for every new token",
            )
        return pages

    def _split(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Cut a group where lengths grow too far apart to pad them to one length."""
        few = -(-ALWAYS_TOGETHER_TOKENS // self.page_tokens)
        cuts = [first]
        for i in range(first + 1, stop):
            if len(self._held[i]) > max(few, 2 * len(self._held[cuts[-1]])):
                cuts.append(i)
        return list(zip(cuts, [*cuts[1:], stop], strict=True))

    def _span_pages(self, first: int, stop: int) -> int:
        return max(len(pages) for pages in self._held[first:stop])

    def _write(self) -> np.ndarray:
        places = []
        for row, pages in zip(self.rows, self._held, strict=True):
            positions = np.arange(row.start, row.end)
            own = positions // self.page_tokens - self._first_page(row)
            places.append(pages[own].astype(np.int64) * self.page_tokens + positions % self.page_tokens)
        return np.concatenate(places)

    def _begun(self) -> np.ndarray:
        begun = [
            pages[-1]
            for row, pages in zip(self.rows, self._held, strict=True)
            if row.end % self.page_tokens and row.end // self.page_tokens * self.page_tokens >= row.start
        ]
        return np.array(begun, dtype=np.int64)

    def _gather(self) -> np.ndarray:
        pages = []
        for first, stop in self.spans:
            longest = self._span_pages(first, stop)
            for held in self._held[first:stop]:
                pages.append(held)
                pages.append(np.repeat(held[-1:], longest - len(held)))
        return np.concatenate(pages)

    def _starts(self, first: int, stop: int) -> np.ndarray:
        """Absolute positions, shape (2, rows): first KV token of each row, first query of each row."""
        rows = self.rows[first:stop]
        if stop - first == 1:
            keys = [first_visible(self.rule, rows[0].start)]
        else:
            keys = [self._first_page(row) * self.page_tokens for row in rows]
        return np.array([keys, [row.start for row in rows]], dtype=np.int64)
