"""Which sequences compute which tokens in the next step.

A step takes one token of every sequence that generates, then chunks of prompts, oldest first, while
the budget lasts. Chunks end at fixed places only (rule X-2): the grid, and the request's own stops;
so how a prompt is cut never depends on what else runs. When a pool is full, the newest sequence gives
everything back and waits again (rule X-5).
"""

from __future__ import annotations

from dataclasses import dataclass

from graftline.cache import CachedRequest, PrefixCache
from graftline.engine.api import ReuseReport
from graftline.engine.config import EngineConfig
from graftline.engine.sequence import Phase, Sequence
from graftline.errors import CapacityError
from graftline.key import Namespace
from graftline.plan import Match


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens `start .. end` of one sequence, to be computed in this step."""

    sequence: Sequence
    cached: CachedRequest
    start: int
    end: int

    @property
    def samples(self) -> bool:
        """Whether the last token known is computed, so that the next one can be chosen."""
        return self.end == len(self.cached.tokens)


class Scheduler:
    """Sequences that wait and that run, and the counters of what became of them.

    Args:
        cache: the prefix cache.
        config: sizes.
        model: fingerprint of the model, for namespaces.
    """

    def __init__(self, cache: PrefixCache, config: EngineConfig, model: str) -> None:
        self._cache = cache
        self._config = config
        self._model = model
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.preemptions = 0

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence."""
        self.waiting.append(sequence)
        self.waiting.sort(key=lambda waiting: waiting.urgency)

    def plan(self) -> list[Work]:
        """Work for one step; every token of it has a place in the pools. Empty when nothing can run."""
        budget = self._config.max_batched_tokens
        preempted = self.preemptions
        plan: dict[int, Work] = {}
        decoding = [s for s in self.running if self._left(s) == 1]
        for sequence in decoding + [s for s in self.running if s not in decoding]:
            budget = self._plan_one(sequence, plan, budget)
        while self._may_admit(budget) and self.preemptions == preempted:
            if not self._admit(self.waiting[0]):
                break
            before = len(plan)
            budget = self._plan_one(self.running[-1], plan, budget)
            if len(plan) == before:
                break
        return [work for work in plan.values() if work.sequence.phase is Phase.RUNNING]

    def end(self, sequence: Sequence, *, keep: bool) -> None:
        """Takes a sequence out, wherever it is; with `keep`, what it computed stays cached."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running:
            self._stop(sequence, keep=keep)
        sequence.phase = Phase.ENDED

    # -- steps -----------------------------------------------------------------------------------

    def _may_admit(self, budget: int) -> bool:
        return bool(self.waiting) and budget > 0 and len(self.running) < self._config.max_running

    def _left(self, sequence: Sequence) -> int:
        cached = sequence.cached
        return 0 if cached is None else len(cached.tokens) - cached.computed_tokens

    def _plan_one(self, sequence: Sequence, plan: dict[int, Work], budget: int) -> int:
        """Plans a sequence's next chunk if it fits whole; returns the budget left."""
        cached = sequence.cached
        if cached is None:  # preempted by one planned before
            return budget
        start = cached.computed_tokens
        end = self._chunk_end(cached)
        if end - start > budget or not self._make_room(sequence, cached, end, plan):
            return budget
        plan[sequence.ident] = Work(sequence, cached, start, end)
        return budget - (end - start)

    def _chunk_end(self, cached: CachedRequest) -> int:
        grid = self._config.chunk_tokens
        return min(cached.next_stop(), (cached.computed_tokens // grid + 1) * grid)

    def _make_room(self, sequence: Sequence, cached: CachedRequest, end: int, plan: dict[int, Work]) -> bool:
        """Gets places for tokens up to `end`, preempting newer sequences if need be (rule X-5)."""
        while True:
            try:
                cached.grow(end)
            except CapacityError:
                newest = self.running[-1]
                plan.pop(newest.ident, None)
                self._preempt(newest)
                if newest is sequence:
                    return False
            else:
                return True

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        self._stop(sequence, keep=True)
        sequence.phase = Phase.WAITING
        self.add(sequence)

    def _stop(self, sequence: Sequence, *, keep: bool) -> None:
        self.running.remove(sequence)
        cached, sequence.cached = sequence.cached, None
        if cached is not None and keep:
            cached.finish()
        elif cached is not None:
            cached.abort()

    def _admit(self, sequence: Sequence) -> bool:
        """Starts the first waiting sequence; False when even its live state finds no slot yet."""
        request = sequence.request
        namespace = Namespace(self._model, adapter=request.adapter, salt=request.salt)
        use_cache = request.use_cache and self._config.prefix_cache
        try:
            cached = self._cache.begin(
                sequence.tokens, namespace=namespace, use_cache=use_cache, marks=request.marks
            )
        except CapacityError:
            return False
        if self.running and not self._fits(cached):
            cached.abort()
            return False
        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.cached = cached
        sequence.phase = Phase.RUNNING
        if sequence.reuse is None:
            sequence.reuse = report(len(request.tokens), cached.match)
        return True

    def _fits(self, cached: CachedRequest) -> bool:
        """Whether the rest of the prompt, and a page for each running sequence, could be placed now."""
        page = self._cache.page_tokens
        uses = {use.component: use for use in self._cache.uses()}
        for spec in self._cache.components:
            if spec.rule.holds_state:
                continue
            end = -(-(len(cached.tokens) + 1) // page)
            first = max(cached.computed_tokens // page, spec.rule.first_page(end, page))
            use = uses[spec.name]
            if end - first + len(self.running) > use.free + use.held - use.leased:
                return False
        return True


def report(prompt_tokens: int, match: Match) -> ReuseReport:
    """What a request is told of its match (rule M-4)."""
    return ReuseReport(
        prompt_tokens=prompt_tokens,
        matched_tokens=match.path_tokens,
        reused_tokens=match.boundary_tokens,
        limited_by=match.limited_by,
        lost_tokens=match.lost_tokens,
        reason=match.reason,
        boundaries={vote.component: vote.boundary_tokens for vote in match.votes},
    )
