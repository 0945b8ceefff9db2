"""One request's life: what it reuses, what it computes, what it leaves behind.

Who owns the pages of a request, for each component:

    [0, first needed)                 nobody: left behind by a window, given back (rule C-9)
    [first needed, lease boundary)    the tree, protected by the lease
    [lease boundary, computed end)    the request: they go to the tree at the next stop or at the end;
                                      what the tree has by then is taken from it instead (rule C-10)

A component that holds states has no pages here, but one live slot, which the engine updates in place,
and while text is generated a second one with the state of the last page boundary (rule C-6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from graftline.cache.news import Ended, News
from graftline.cache.table import PageTable
from graftline.errors import CapacityError, ConfigError, GraftlineError
from graftline.key import Namespace, Tokens, TokensLike, as_tokens
from graftline.plan import Held, Match, Slots

if TYPE_CHECKING:
    from graftline.cache.prefix_cache import PrefixCache


class RequestEndedError(GraftlineError):
    """A request was used after `finish` or `abort`."""


class CachedRequest:
    """A request between `begin` and `finish` or `abort`.

    Attributes:
        namespace: where its values are looked up and kept.
        use_cache: whether it reuses and keeps anything.
        prompt_tokens: tokens that it began with.
        match: what was found, and why not more.
        forgotten: what was known once and has left the tree, when the cache is watched (rule C-11).
        shortfalls: what the tiers below reach and the device does not, with the reasons (rule H-9).
        reused_tokens: tokens that need not be computed.
        computed_tokens: tokens whose values are in the request's pages and live states.
    """

    def __init__(
        self,
        cache: PrefixCache,
        prompt: Tokens,
        namespace: Namespace,
        use_cache: bool,
        marks: Sequence[int],
        news: News,
    ) -> None:
        self._cache = cache
        self._news = news
        self._page = cache.page_tokens
        self.namespace = namespace
        self.use_cache = use_cache
        self.prompt_tokens = len(prompt)
        self._tokens = prompt.copy()
        self._count = len(prompt)
        self._paged = [spec for spec in cache.components if not spec.rule.holds_state]
        self._stateful = [spec for spec in cache.components if spec.rule.holds_state]
        self._tables = {spec.name: PageTable() for spec in self._paged}
        self._live: dict[str, Slots] = {}
        self._kept: dict[str, Slots] = {}
        self._kept_boundary = 0
        self._leaving: dict[str, Slots] = {}
        self._own: list[int] = []
        limit = len(prompt) - 1 if use_cache else 0
        self.match: Match = cache.core.match(namespace, prompt, limit)
        self.forgotten = news.matched(prompt, self.match) if use_cache else None
        self.shortfalls = news.shortfalls(prompt, self.match) if use_cache else ()
        self._lease = cache.core.lease(self.match)
        self.reused_tokens = self._lease.boundary_tokens
        self.computed_tokens = self.reused_tokens
        branch = self.match.branch_tokens
        plan = cache.placement.plan(self._page, len(prompt), self.reused_tokens, branch, marks)
        self._stops, self._held_back, self._for_others = plan.stops, plan.held_back, plan.for_others
        self._pauses = self._stops if must_pause(cache, self.reused_tokens, marks) else ()
        cache.open_requests += 1
        self._open = True
        try:
            if use_cache:
                news.begun(prompt)
            self._restore()
        except BaseException:
            self.abort()
            raise
        news.kept(self._tokens[: self.reused_tokens])

    # -- what an engine reads ------------------------------------------------------------------------

    @property
    def tokens(self) -> Tokens:
        """Prompt and generated tokens so far, u32; a view, valid until the next `append`."""
        return self._tokens[: self._count]

    def table(self, component: str) -> Slots:
        """Slot of each absolute page of a paged component, -1 where none; a view, valid until `grow`."""
        table = self._tables[component]
        return table.slots[: table.pages]

    def live_slot(self, component: str) -> int:
        """The private slot in which the engine updates a component's state."""
        return int(self._live[component][0])

    def next_stop(self) -> int:
        """Where the prompt's computation must pause next, in tokens; the prompt's end at the latest."""
        return next((stop for stop in self._pauses if stop > self.computed_tokens), self._count)

    @property
    def open(self) -> bool:
        """Whether neither `finish` nor `abort` was called yet."""
        return self._open

    # -- what an engine does -------------------------------------------------------------------------

    def append(self, tokens: TokensLike) -> None:
        """Adds tokens that follow; they are not computed yet."""
        new = as_tokens(tokens)
        if self._count + len(new) > len(self._tokens):
            room = np.empty(max(2 * len(self._tokens), self._count + len(new)), dtype=np.uint32)
            room[: self._count] = self._tokens[: self._count]
            self._tokens = room
        self._tokens[self._count : self._count + len(new)] = new
        self._count += len(new)

    def add_stop(self, boundary_tokens: int) -> None:
        """Makes the prompt's computation pause and keep what is due at one more page boundary (rule C-5).

        Raises:
            ConfigError: not a page boundary of the prompt, or computed already.
        """
        self._require_open()
        if boundary_tokens % self._page or not self.computed_tokens < boundary_tokens <= self.prompt_tokens:
            raise ConfigError(
                f"cannot stop at token {boundary_tokens}: it must be a multiple of {self._page} after"
                f" {self.computed_tokens} and at most {self.prompt_tokens}"
            )
        self._stops = tuple(sorted({*self._stops, boundary_tokens}))
        self._pauses = tuple(sorted({*self._pauses, boundary_tokens}))
        self._for_others.add(boundary_tokens)

    def share(self, boundary_tokens: int) -> None:
        """Puts what is computed before a page boundary into the tree at once, for others to read (rule X-7).

        For caches of prefix-closed components alone: others give back what a boundary needs as they go on.
        """
        self._require_open()
        assert all(spec.rule.prefix_closed for spec in self._cache.components)
        boundary = min(boundary_tokens, self.computed_tokens) // self._page * self._page
        if self.use_cache and boundary > self._lease.boundary_tokens:
            self._keep(boundary)
            self._news.kept(self._tokens[:boundary])

    def grow(self, to_tokens: int) -> None:
        """Makes sure that tokens up to `to_tokens` have places to be written to (rule C-4).

        Raises:
            CapacityError: a pool is full; what was taken before stays the request's.
        """
        self._require_open()
        end = -(-to_tokens // self._page)
        for spec in self._paged:
            table = self._tables[spec.name]
            first = max(table.pages, self.computed_tokens // self._page)
            if end > first:
                table.set(first, self._cache.allocate(spec.name, end - first, self.namespace), own=True)
        self._news.happened()

    def advance(self, to_tokens: int) -> None:
        """Tells that all tokens before `to_tokens` are computed; keeps and gives back what is due.

        Raises:
            ConfigError: it goes backward, past the tokens known, or over a stop.
        """
        self._require_open()
        if not self.computed_tokens <= to_tokens <= self._count:
            raise ConfigError(
                f"cannot advance to {to_tokens}: {self.computed_tokens} tokens are computed,"
                f" {self._count} known"
            )
        if to_tokens > self.next_stop():
            raise ConfigError(f"token {to_tokens} is past the stop at {self.next_stop()}")
        before, self.computed_tokens = self.computed_tokens, to_tokens
        if self.use_cache:
            self._keep_due(before, to_tokens)
        self._leave_behind()
        self._news.happened()

    def finish(self, *, answer_tokens: int | None = None) -> None:
        """Ends the request and keeps what it computed, up to its last whole page (rules C-2, C-7).

        Args:
            answer_tokens: length of the answer, for orders of eviction that age; counted where it is None.
        """
        self._require_open()
        boundary = self.computed_tokens // self._page * self._page
        is_new = boundary > self._lease.boundary_tokens
        try:
            if self.use_cache and is_new:
                if self._kept_boundary == boundary:
                    self._leaving, self._kept = self._kept, {}
                self._keep(boundary)
            if self.use_cache:
                ended = Ended(self.tokens, self.prompt_tokens, answer_tokens, self._own, is_new)
                self._news.completed(self._lease, ended)
        finally:
            self.abort()

    def abort(self) -> None:
        """Ends the request and gives back everything; what was kept at stops stays. May be called again."""
        if not self._open:
            return
        self._open = False
        self._cache.open_requests -= 1
        for name, table in self._tables.items():
            self._cache.ledgers[name].give_back(table.drop_before(table.pages))
        for states in (self._live, self._kept, self._leaving):
            for name, slots in states.items():
                self._cache.ledgers[name].give_back(slots)
            states.clear()
        self._cache.core.release(self._lease)
        self._news.ended()

    def __enter__(self) -> CachedRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    # -- steps -----------------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if not self._open:
            raise RequestEndedError("the request has ended", hint="begin a new one")

    def _restore(self) -> None:
        """Takes over the leased pages and copies the leased states (rule C-3)."""
        for spec in self._paged:
            held = self._lease.held[spec.name]
            self._tables[spec.name].set(held.first_page, held.slots, own=False)
        for spec in self._stateful:
            self._live[spec.name] = self._cache.allocate(spec.name, 1, self.namespace)
            held = self._lease.held[spec.name]
            if len(held.slots):
                self._cache.pools[spec.name].copy(int(held.slots[-1]), self.live_slot(spec.name))
        self._cache.core.release_components(self._lease, [spec.name for spec in self._stateful])

    def _keep_due(self, before: int, after: int) -> None:
        """Keeps what is due at the boundaries that were reached; live states are those of the last one."""
        due = [stop for stop in self._stops if before < stop <= after and stop != self._held_back]
        for stop in due:
            self._copy_states(self._leaving)
            self._keep(stop)
            self._news.kept(self._tokens[:stop])
        answers = self._cache.placement.answer and after >= (self._held_back or self.prompt_tokens)
        if answers and after % self._page == 0 and after not in due:
            self._copy_states(self._kept)
            self._kept_boundary = after

    def _copy_states(self, into: dict[str, Slots]) -> None:
        """Copies the live states, in place of what was there, less those that get no slot (rule C-8)."""
        for spec in self._stateful:
            if spec.name not in into:
                try:
                    into[spec.name] = self._cache.allocate(spec.name, 1, self.namespace)
                except CapacityError:
                    self._cache.skipped_checkpoints += 1
                    continue
            self._cache.pools[spec.name].copy(self.live_slot(spec.name), int(into[spec.name][0]))

    def _keep(self, boundary: int) -> None:
        """Puts everything up to `boundary` and the leaving states into the tree; moves the lease there."""
        start, end = self._lease.boundary_tokens // self._page, boundary // self._page
        values: dict[str, Sequence[Held]] = {}
        for spec in self._paged:
            first = max(start, spec.rule.first_page(end, self._page))
            runs = self._tables[spec.name].private(first, end)
            values[spec.name] = [Held(page, slots) for page, slots in runs]
        for name, slots in self._leaving.items():
            values[name] = [Held(end - 1, slots)]
        done = self._cache.core.insert(
            self._lease, self._tokens[start * self._page : boundary], values, move_lease=True
        )
        self._lease = done.lease
        if boundary not in self._for_others and any(spec.name in done.adopted for spec in self._stateful):
            self._own.append(boundary)
        self._hand_over(done.adopted)
        self._take_over(start, end)
        self._cache.core.release_components(self._lease, [spec.name for spec in self._stateful])

    def _hand_over(self, adopted: Mapping[str, Sequence[Held]]) -> None:
        """Books what the tree adopted; a state that it already had is given back."""
        for name, runs in adopted.items():
            for run in runs:
                self._cache.ledgers[name].adopt(run.slots)
                if name in self._tables:
                    self._tables[name].own[run.first_page : run.end_page] = False
        for name, slots in self._leaving.items():
            if name not in adopted:
                self._cache.ledgers[name].give_back(slots)
        self._leaving = {}

    def _take_over(self, start: int, end: int) -> None:
        """Gives back private copies of pages that the tree holds too, and reads the tree's (rule C-10)."""
        for spec in self._paged:
            table, held = self._tables[spec.name], self._lease.held[spec.name]
            first = max(start, held.first_page)
            for page, slots in table.private(first, end):
                self._cache.ledgers[spec.name].give_back(slots)
                place = page - held.first_page
                table.set(page, held.slots[place : place + len(slots)], own=False)

    def _leave_behind(self) -> None:
        """Gives back the pages that no later token and no later boundary of the request needs (rule C-9)."""
        boundary = self.computed_tokens // self._page
        for spec in self._paged:
            table = self._tables[spec.name]
            first = spec.rule.first_page(boundary, self._page)
            if first <= table.first:
                continue
            self._cache.ledgers[spec.name].give_back(table.drop_before(first))
            if first * self._page >= self._lease.boundary_tokens:
                self._cache.core.release_components(self._lease, [spec.name])


def must_pause(cache: PrefixCache, reused_tokens: int, marks: Sequence[int]) -> bool:
    """Whether stops are pauses: for the states there, or for the bits of the logits (rule C-14)."""
    grid, page = cache.cut_tokens, cache.page_tokens
    if not grid or any(spec.rule.holds_state for spec in cache.components):
        return True
    return reused_tokens % grid == 0 or reused_tokens in {mark // page * page for mark in marks}
