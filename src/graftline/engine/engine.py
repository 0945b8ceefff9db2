"""HybridEngine: one model, one thread, many requests.

The way of a request: `submit` queues it; the thread plans a step (`scheduler.py`), the runner computes
it (`runner.py`), the cache keeps what is due (`cache/request.py`), the sampler chooses tokens, and each
token goes to the caller's `on_event`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from graftline.cache import PrefixCache
from graftline.cache.explain import Explanation
from graftline.engine import stores
from graftline.engine.api import (
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    TokenEvent,
)
from graftline.engine.batch import Row
from graftline.engine.checks import checked
from graftline.engine.config import EngineConfig
from graftline.engine.runner import Runner
from graftline.engine.sampler import Sampled
from graftline.engine.scheduler import Scheduler
from graftline.engine.sequence import Phase, Sequence
from graftline.engine.tallies import Tallies
from graftline.engine.work import Work
from graftline.errors import CapacityError, ConfigError, EngineClosedError
from graftline.plan import Tier
from graftline.tiers import LoadBrokenError

logger = logging.getLogger("graftline.engine")


class HybridEngine:
    """Serves requests on a model with prefix reuse; see `graftline.engine.api.Engine`.

    Use `graftline.engine.load_engine` to make one from a checkpoint.

    Args:
        runner: the model and its pools; owned from now on.
        cache: the prefix cache over the runner's pools; owned from now on.
        config: sizes.
        info: what `info` shall say.
        fingerprint: identity of the model, for namespaces.
        bell: what the cache rings when a copy between tiers has ended.
    """

    def __init__(
        self,
        runner: Runner,
        cache: PrefixCache,
        config: EngineConfig,
        info: EngineInfo,
        fingerprint: str,
        bell: threading.Event | None = None,
    ) -> None:
        self.info = info
        self.cache = cache
        self._runner = runner
        self._config = config
        self._scheduler = Scheduler(cache, config, fingerprint)
        self._paged = [spec.name for spec in cache.components if not spec.rule.holds_state]
        self._stateful = [spec.name for spec in cache.components if spec.rule.holds_state]
        self._sequences: dict[int, Sequence] = {}
        self._to_end: dict[int, FinishReason] = {}
        self._tallies = Tallies()
        self._idents = 0
        self._closing = False
        self._hurried = threading.Event()
        self._unwritten = 0
        self._broken: BaseException | None = None
        self._changed = threading.RLock()
        self._bell = bell or threading.Event()
        self._thread = threading.Thread(target=self._run, name="graftline-engine", daemon=True)
        self._thread.start()

    # -- for any thread --------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the engine stopped after a fault."""
        return self._broken is not None

    def submit(self, request: GenerationRequest, on_event: Callable[[TokenEvent], None]) -> int:
        """Queues a request and returns its id; see `Engine.submit` for the errors."""
        request = checked(request, self.info, self._config, self.cache.components)
        with self._changed:
            if self._closing or self._broken:
                raise EngineClosedError("the engine takes no more requests", hint="start a new one")
            if len(self._scheduler.waiting) >= self._config.max_waiting:
                raise CapacityError(
                    "queue", 1, 0, hint=f"{self._config.max_waiting} requests wait already; try again later"
                )
            self._idents += 1
            sequence = Sequence(self._idents, request, on_event, self._idents)
            self._sequences[sequence.ident] = sequence
            self._scheduler.add(sequence)
            self._bell.set()
            return sequence.ident

    def abort(self, request_id: int) -> None:
        """Ends a request early with `abort`; see `Engine.abort`."""
        self._end_soon(request_id, "abort")

    def finish(self, request_id: int) -> None:
        """Ends a request early with `stop` and keeps what it computed; see `Engine.finish`."""
        self._end_soon(request_id, "stop")

    def _end_soon(self, request_id: int, reason: FinishReason) -> None:
        with self._changed:
            if request_id in self._sequences:
                self._to_end.setdefault(request_id, reason)
                self._bell.set()

    def stats(self) -> EngineStats:
        """Counters and sizes, a consistent snapshot between two steps."""
        with self._changed:
            return self._tallies.stats(self._scheduler, self.cache)

    def clear_cache(self, tier: Tier = Tier.DEVICE) -> int:
        """Frees everything in a tier that no running request needs; returns how many slots.

        Raises:
            StoreError: a store could not be cleared.
        """
        with self._changed:
            shelf = stores.shelf_of(self.cache)
            if tier is not Tier.STORE:
                return self.cache.clear(tier)
        if shelf is not None:
            stores.clear(shelf)
        return 0

    def attach_store(self, url: str) -> None:
        """Begins to use one more store, below those that are there; see `Engine.attach_store`."""
        with self._changed:
            stores.attach(self.cache, url, measure=self._config.break_even is None)
            self._bell.set()

    def detach_store(self, url: str) -> bool:
        """Stops to use a store and closes it; see `Engine.detach_store`."""
        with self._changed:
            found = stores.detach(self.cache, url)
            self._bell.set()  # requests may have waited for it
            return found

    def close_session(self, name: str) -> bool:
        """Ends a session, in every tier; see `Engine.close_session`."""
        with self._changed:
            return self.cache.close_session(name)

    def explain(self, label: str) -> Explanation | None:
        """Why a request reused what it did; see `Engine.explain`."""
        with self._changed:
            if self.cache.watch is None:
                raise ConfigError(
                    "this engine does not remember what left its cache", hint="start it with explain_pages"
                )
            return self.cache.watch.explanation(label)

    def hurry(self) -> None:
        """Closing waits for no store from now on; see `Engine.hurry`."""
        self._hurried.set()
        self._bell.set()

    def close(self) -> int:
        """Aborts what runs and ends the thread; see `Engine.close`."""
        if not self._thread.is_alive():  # what was given up in a hurry may still have the lock
            return self._unwritten
        with self._changed:
            self._closing = True
            self._bell.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        return self._unwritten

    # -- on the engine's thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            logger.exception("the engine stopped")
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changed:
                for sequence in list(self._sequences.values()):
                    self._end(sequence, "abort")
            closing = stores.Closing(self._changed, self._bell, self._hurried)
            try:
                if not self._broken:
                    self._unwritten = closing.drain(self.cache, self._config.drain_s)
            finally:
                closing.close(self.cache)

    def _turn(self) -> bool:
        """One step; waits for the bell while there is nothing to do. False when the engine is to close."""
        self._bell.clear()  # before looking: whatever comes after rings again
        with self._changed:
            if self._closing:
                return False
            self.cache.set_time(time.monotonic())
            self._end_early()
            plan = self._scheduler.plan()
            self._count_admissions()
            rows = [self._row(work) for work in plan]
            idle = not plan and self._scheduler.idle
            if not plan and not idle:
                self._fail_stuck()
        if idle:
            self._bell.wait(self._scheduler.restores.deadline_s())
        if rows:
            self._compute(plan, rows)
        return True

    def _compute(self, plan: list[Work], rows: list[Row]) -> None:
        """Computes a step and books it; after a load that broke off, its sequences begin again (H-10)."""
        try:
            logits = self._runner.step(rows)
        except LoadBrokenError as error:
            logger.warning("a load failed while it was read, and is copied again: %s", error.message)
            assert self.cache.lower is not None, "whence the load came"
            with self._changed:
                self.cache.lower.await_opened()
                self._scheduler.restart(plan)
            return
        with self._changed:
            for work, row_logits in zip(plan, logits, strict=True):
                self._advance(work, row_logits)

    def _row(self, work: Work) -> Row:
        cached = work.cached
        return Row(
            tokens=cached.tokens[work.start : work.end].astype(np.int64),
            start=work.start,
            tables={name: cached.table(name) for name in self._paged},
            state_slot=cached.live_slot(self._stateful[0]) if self._stateful else None,
        )

    def _advance(self, work: Work, logits: torch.Tensor) -> None:
        """Books a computed chunk, and samples when the last known token was computed."""
        sequence = work.sequence
        work.cached.advance(work.end)
        if not work.samples:
            return
        sampled = sequence.choose(logits)
        sampling = sequence.request.sampling
        if sampled.token in sampling.stop_token_ids or (
            not sampling.ignore_eos and sampled.token in self.info.eos_token_ids
        ):
            self._scheduler.end(sequence, keep=True)
            self._end(sequence, "stop")
            return
        sequence.generated.append(sampled.token)
        self._tallies.tokens["generated"] += 1
        if len(sequence.generated) == sampling.max_tokens:
            self._scheduler.end(sequence, keep=True)
            self._forget(sequence, "length")
            self._tell(sequence, sampled, "length")
            return
        work.cached.append([sampled.token])
        self._tell(sequence, sampled)

    def _count_admissions(self) -> None:
        for sequence in self._scheduler.running:
            if sequence.reuse is not None and not sequence.counted:
                sequence.counted = True
                self._tallies.admitted(sequence.reuse)

    def _end_early(self) -> None:
        """Ends the requests that `abort` and `finish` named since the last step."""
        while self._to_end:  # a callback may end others
            ident, reason = self._to_end.popitem()
            if ident in self._sequences:
                self._end(self._sequences[ident], reason)

    def _fail_stuck(self) -> None:
        """Nothing runs, nothing is on its way, and the first waiting request finds no room: it never will."""
        if not self._scheduler.stuck:
            return
        sequence = self._scheduler.waiting[0]
        self._end(sequence, "error", "the pools cannot hold this request")

    def _end(self, sequence: Sequence, reason: FinishReason, error: str = "") -> None:
        """Takes a sequence out, wherever it is, and tells the caller."""
        if sequence.phase is not Phase.ENDED:
            self._scheduler.end(sequence, keep=reason == "stop")
        self._forget(sequence, reason)
        self._tell(sequence, None, reason, error)

    def _tell(
        self, sequence: Sequence, token: Sampled | None, reason: FinishReason | None = None, error: str = ""
    ) -> None:
        """Gives the caller an event; a request whose caller does not listen any more is ended."""
        sequence.tell(token, reason, error)
        if sequence.deaf:
            self.abort(sequence.ident)

    def _forget(self, sequence: Sequence, reason: str) -> None:
        del self._sequences[sequence.ident]
        self._tallies.outcomes[reason] += 1

    def _fail(self, error: BaseException) -> None:
        """The engine cannot go on: every request is told, and new ones are refused."""
        with self._changed:
            self._broken = error
            for sequence in list(self._sequences.values()):
                self._end(sequence, "error", f"the engine stopped: {type(error).__name__}")
