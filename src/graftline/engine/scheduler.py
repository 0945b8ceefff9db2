"""Which sequences compute which tokens in the next step.

A step takes one token of every sequence that generates, then chunks of prompts, oldest first, while
the budget lasts. Chunks end at fixed places only (rule X-2): the grid, and the request's own stops;
so how a prompt is cut never depends on what else runs. When a pool is full, the newest sequence gives
everything back and waits again (rule X-5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from graftline.cache import CachedRequest, PrefixCache, Session
from graftline.engine.api import GenerationRequest, ReuseReport
from graftline.engine.coalesce import find_wait, shared_boundary
from graftline.engine.config import EngineConfig
from graftline.engine.restores import Restored, Restores
from graftline.engine.sequence import Phase, Sequence
from graftline.engine.work import StepPlan, Work
from graftline.errors import CapacityError
from graftline.key import Namespace, Tokens
from graftline.tree.sessions import PRIORITY_MAX


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
        self.restores = Restores(cache)
        self._made_room = False

    @property
    def idle(self) -> bool:
        """After an empty plan: whether nothing can be planned before the bell rings."""
        return not self.running and (not self.waiting or self._moving)

    @property
    def stuck(self) -> bool:
        """After an empty plan: whether the first waiting sequence finds no room and never will (rule X-6)."""
        return bool(self.waiting) and not (self.running or self._moving or self._made_room)

    @property
    def _moving(self) -> bool:
        """Whether places are taken by what moves between tiers, for a while."""
        return self.restores.busy or (self._cache.lower is not None and self._cache.lower.busy)

    def add(self, sequence: Sequence) -> None:
        """Queues a new sequence."""
        self.waiting.append(sequence)
        self.waiting.sort(key=lambda waiting: waiting.urgency)

    def plan(self) -> list[Work]:
        """Work for one step; every token of it has a place in the pools. Empty when nothing can run."""
        self._bring_up()
        self._made_room = False
        preempted = self.preemptions
        plan = StepPlan(self._config.max_batched_tokens)
        decoding = [s for s in self.running if self._left(s) == 1]
        for sequence in decoding + [s for s in self.running if s not in decoding]:
            self._plan_one(sequence, plan)
        for sequence in list(self.waiting):
            if not self._may_admit(plan) or self.preemptions != preempted:
                break
            if self._waits(sequence, plan):
                continue
            if self.running and self.restores.held_off(sequence):
                break
            if not self.restores.ready(sequence, alone=self._alone):
                continue
            if not self._admit(sequence):
                break
            before = len(plan)
            self._plan_one(sequence, plan)
            if len(plan) == before:
                break
        return list(plan)

    def end(self, sequence: Sequence, *, keep: bool) -> None:
        """Takes a sequence out, wherever it is; with `keep`, what it computed stays cached."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            self.restores.drop(sequence)
        if sequence in self.running:
            self._stop(sequence, keep=keep)
        sequence.phase = Phase.ENDED

    def restart(self, plan: Iterable[Work]) -> None:
        """A step was broken off half way: its sequences, whose states are of no use now, begin again."""
        for work in plan:
            self._stop(work.sequence, keep=False)
            work.sequence.phase = Phase.WAITING
            self.add(work.sequence)

    # -- steps -----------------------------------------------------------------------------------

    def _may_admit(self, plan: StepPlan) -> bool:
        taken = len(self.running) + self.restores.under_way
        return plan.budget_tokens > 0 and taken < self._config.max_running

    @property
    def _alone(self) -> bool:
        """Whether a load may be read while it comes: nobody else runs who would wait in the same step."""
        return self._config.overlap_loads and not self.running

    def _bring_up(self) -> None:
        """Goes on with what comes up from the tiers below for those that wait (rule X-8)."""
        if self._cache.lower is None:
            return
        for sequence in self.waiting:
            if self._uses_cache(sequence):
                self.restores.queue(sequence, self._namespace(sequence), self._patience_s(sequence))
        self.restores.pump()

    def _patience_s(self, sequence: Sequence) -> float:
        """How long a sequence waits for a store at most."""
        request, config = sequence.request, self._config
        policy = request.prefetch_policy or config.prefetch_policy
        timeout_s = request.prefetch_timeout_s or config.prefetch_timeout_s
        return {"best_effort": 0.0, "wait": math.inf, "timeout": timeout_s}[policy]

    def _waits(self, sequence: Sequence, plan: StepPlan) -> bool:
        """Whether a sequence waits for a running one that computes the same prefix (rule X-7)."""
        if sequence.wait is not None and not sequence.wait.over:
            return True
        leaders = self._leaders(sequence)
        if not leaders:
            return False
        namespace, tokens = self._namespace(sequence), sequence.tokens
        cached_tokens = self._cache.core.match(namespace, tokens, len(tokens) - 1).boundary_tokens
        wait = find_wait(tokens, cached_tokens, self._cache.page_tokens, leaders)
        if wait is None or not sequence.may_wait(wait):
            self._share(tokens, leaders)
            return False
        wait.leader.add_stop(wait.boundary_tokens)
        plan.cut(leaders[wait.leader], wait.boundary_tokens)
        sequence.begin_wait(wait)
        return True

    def _leaders(self, sequence: Sequence) -> dict[CachedRequest, Sequence]:
        """Running sequences whose values a waiting one could take over."""
        if not (self._config.coalesce and self._uses_cache(sequence)):
            return {}
        namespace = self._namespace(sequence)
        return {
            leader.cached: leader
            for leader in self.running
            if leader.cached is not None and leader.cached.use_cache and leader.cached.namespace == namespace
        }

    def _share(self, tokens: Tokens, leaders: Iterable[CachedRequest]) -> None:
        """Running requests put what they have computed of a prompt into the tree, where that is enough."""
        if not all(spec.rule.prefix_closed for spec in self._cache.components):
            return
        for leader in leaders:
            leader.share(shared_boundary(tokens, leader, self._cache.page_tokens))

    def _uses_cache(self, sequence: Sequence) -> bool:
        return sequence.request.use_cache and self._config.prefix_cache

    def _namespace(self, sequence: Sequence) -> Namespace:
        request = sequence.request
        return Namespace(self._model, adapter=request.adapter, salt=request.salt)

    def _left(self, sequence: Sequence) -> int:
        cached = sequence.cached
        return 0 if cached is None else len(cached.tokens) - cached.computed_tokens

    def _plan_one(self, sequence: Sequence, plan: StepPlan) -> None:
        """Plans a sequence's next chunk if it fits whole."""
        cached = sequence.cached
        if cached is None:  # preempted by one planned before
            return
        start = cached.computed_tokens
        end = self._chunk_end(cached)
        if end - start <= plan.budget_tokens and self._make_room(sequence, cached, end, plan):
            plan.add(Work(sequence, cached, start, end))

    def _chunk_end(self, cached: CachedRequest) -> int:
        grid = self._config.chunk_tokens
        return min(cached.next_stop(), (cached.computed_tokens // grid + 1) * grid)

    def _make_room(self, sequence: Sequence, cached: CachedRequest, end: int, plan: StepPlan) -> bool:
        """Gets places for tokens up to `end`, preempting newer sequences if need be (rule X-5)."""
        while True:
            try:
                cached.grow(end)
            except CapacityError:
                if self.restores.make_room():
                    self._made_room = True
                    continue
                newest = self.running[-1]
                plan.drop(newest)
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
        self.restores.stops += 1
        cached, sequence.cached = sequence.cached, None
        if cached is not None and keep:
            cached.finish()
        elif cached is not None:
            cached.abort()

    def _admit(self, sequence: Sequence) -> bool:
        """Starts a waiting sequence; False when even its live state finds no slot yet."""
        request = sequence.request
        if sequence.session is None and (session := session_of(request)) is not None:
            sequence.session = self._cache.open_session(session)
        try:
            cached = self._cache.begin(
                sequence.tokens,
                namespace=self._namespace(sequence),
                use_cache=self._uses_cache(sequence),
                marks=request.marks,
                session=sequence.session,
                label=request.label,
                below=self.restores.reaches(sequence),
            )
        except CapacityError:
            self._made_room |= self.restores.make_room()
            return False
        if self.running and not self._fits(cached):
            cached.abort()
            return False
        self.waiting.remove(sequence)
        self.running.append(sequence)
        sequence.cached = cached
        sequence.phase = Phase.RUNNING
        coalesced_tokens = sequence.end_wait(cached.reused_tokens)
        restored = self.restores.begun(sequence, cached.reused_tokens)
        if sequence.reuse is None:
            sequence.reuse = report(cached, len(request.tokens), coalesced_tokens, restored)
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


def session_of(request: GenerationRequest) -> Session | None:
    """Whose request it is; None for nobody in particular."""
    if not request.session_id:
        return None
    priority = min(max(request.priority, 0), PRIORITY_MAX)
    return Session(request.session_id, priority, request.expected_return_s)


def report(
    cached: CachedRequest, prompt_tokens: int, coalesced_tokens: int, restored: Restored
) -> ReuseReport:
    """What a request is told of its match (rules M-4, C-11, H-9, X-7, X-8)."""
    match, forgotten = cached.match, cached.forgotten
    told = ReuseReport(
        prompt_tokens=prompt_tokens,
        matched_tokens=match.path_tokens,
        reused_tokens=match.boundary_tokens,
        limited_by=match.limited_by,
        lost_tokens=match.lost_tokens,
        reason=match.reason,
        boundaries={vote.component: vote.boundary_tokens for vote in match.votes},
        coalesced_tokens=coalesced_tokens,
        host_tokens=restored.host_tokens,
        store_tokens=restored.store_tokens,
        restored_ms=restored.seconds * 1e3,
        shortfalls=cached.shortfalls,
    )
    if forgotten is None:
        return told
    return replace(
        told,
        matched_tokens=forgotten.known_tokens,
        lost_tokens=forgotten.known_tokens - told.reused_tokens,
        limited_by=told.limited_by or forgotten.component,
        reason=told.reason or forgotten.reason,
    )
