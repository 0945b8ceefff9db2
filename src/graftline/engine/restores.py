"""What waiting sequences bring up from the tiers below before they run (rule X-8).

    queued      the store is asked for what the tiers in memory lack; it comes to the host
    its turn    when the prefetch has ended, or its time has: the cache is asked for a load, which comes to
                the device; while it is on its way the sequence counts as one that runs
    begun       the load has ended and the sequence holds what it reuses by itself

Meanwhile those behind it may go on. What a load has brought is protected until the sequence has begun, or
until a running one needs the room.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass

from graftline.cache import Load, Prefetch, PrefixCache, Reach
from graftline.cache.shortfall import NOT_ASKED
from graftline.engine.coalesce import common_tokens
from graftline.engine.sequence import Sequence
from graftline.key import Namespace, Tokens
from graftline.plan import Tier

LOADS_AT_ONCE = 2
"""What they bring takes room on the device before its sequence runs."""
PREFETCHES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Restored:
    """What a sequence found below the device: tokens by tier, and how long it took."""

    host_tokens: int = 0
    store_tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Restore:
    """One waiting sequence's way up.

    Attributes:
        tokens: its prompt, and what it has generated before it was preempted.
        patience_s: until when it waits for the store, on the monotonic clock.
        due: whether the store is still to be asked.
        prefetch: what the store was asked for.
        load: what the cache was asked for.
        refused: what the host reaches, when the cache would not load it.
        unasked: whether it lost its patience before the store was asked.
        asked_after: what had changed when the cache was asked, as `_changes` counts it; None before.
        dropped_after: sequences that had stopped running when its load gave way to a running one.
    """

    namespace: Namespace
    tokens: Tokens
    patience_s: float
    due: bool
    prefetch: Prefetch | None = None
    load: Load | None = None
    refused: Reach | None = None
    unasked: bool = False
    asked_after: int | None = None
    dropped_after: int | None = None

    @property
    def fetching(self) -> bool:
        """Whether the store has not answered yet."""
        return self.prefetch is not None and not self.prefetch.done

    @property
    def loading(self) -> bool:
        """Whether a load is on its way to the device."""
        return self.load is not None and not self.load.done

    def covers(self, namespace: Namespace, tokens: Tokens, share: int) -> bool:
        """Whether it brings up at least so many tokens that a prompt begins with."""
        return namespace == self.namespace and common_tokens(tokens, self.tokens) >= share

    def reaches(self) -> tuple[Reach | None, ...]:
        """What the tiers below reach, for the request's report (rule H-9)."""
        host = self.refused if self.load is None else self.load.reach
        if self.unasked:
            return host, Reach(Tier.STORE, None, NOT_ASKED)
        return host, None if self.prefetch is None else self.prefetch.reach

    def result(self, reused_tokens: int) -> Restored:
        """What it has brought of the tokens that are reused."""
        load, fetch = self.load, self.prefetch
        if load is None or load.failed:
            return Restored()
        before = load.boundary_tokens - load.gained_tokens
        loaded = max(0, min(reused_tokens, load.boundary_tokens) - before)
        stored = min(loaded, fetch.fetched_tokens) if fetch is not None and fetch.done else 0
        seconds = load.seconds + (fetch.seconds if fetch is not None and stored else 0.0)
        return Restored(loaded - stored, stored, seconds)


class Restores:
    """The restores of all waiting sequences. Owned by the engine's thread.

    Attributes:
        stops: how many sequences have stopped running; told by the scheduler.
    """

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._restores: dict[int, Restore] = {}
        self._given_up: list[Load] = []
        self.stops = 0

    @property
    def under_way(self) -> int:
        """Sequences that wait for a load."""
        return sum(restore.loading for restore in self._restores.values())

    @property
    def busy(self) -> bool:
        """Whether anything is on its way to a waiting sequence; when it ends the engine is woken."""
        return bool(self._given_up) or any(r.loading or r.fetching for r in self._restores.values())

    def deadline_s(self) -> float | None:
        """Seconds until the first sequence loses its patience with the store; None when none will."""
        now_s = time.monotonic()
        left = [r.patience_s - now_s for r in self._restores.values() if r.fetching or r.due]
        first = min((seconds for seconds in left if seconds > 0), default=math.inf)
        return None if first == math.inf else first

    def pump(self) -> None:
        """Goes on with what has ended, and asks the store for what is due."""
        self._cache.pump()
        for load in [load for load in self._given_up if load.done]:
            load.release()
            self._given_up.remove(load)
        self._ask_store()

    def queue(self, sequence: Sequence, namespace: Namespace, patience_s: float) -> None:
        """A sequence waits; one that has run before is not in the store yet.

        Args:
            patience_s: how long it waits for the store at most.
        """
        if self._cache.lower is None or sequence.ident in self._restores:
            return
        due = self._cache.lower.shelf is not None and sequence.reuse is None
        until_s = time.monotonic() + patience_s
        self._restores[sequence.ident] = Restore(namespace, sequence.tokens, until_s, due)

    def ready(self, sequence: Sequence, *, alone: bool) -> bool:
        """Whether a sequence need not wait; asks for a load when it is time.

        Args:
            alone: whether nothing else runs. Then it begins while its load is still on its way, and waits at
                each layer for that layer (rule H-10); else the others use the time.
        """
        restore = self._restores.get(sequence.ident)
        if restore is None:
            return True
        if (restore.fetching or restore.due) and time.monotonic() < restore.patience_s:
            return False
        restore.unasked |= restore.due
        restore.due = False
        if restore.load is None and restore.asked_after != self._changes():
            others = [other for other in self._restores.values() if other.loading]
            if len(others) >= LOADS_AT_ONCE or any(same_load(restore, other) for other in others):
                return False
            load = self._cache.load(restore.tokens, namespace=restore.namespace, by_layer=alone)
            restore.refused = load.reach if load is not None and load.failed else None
            restore.load = None if restore.refused else load
            restore.asked_after = self._changes()
            if restore.prefetch is not None:
                restore.prefetch.release()
        if alone and restore.load is not None:
            restore.load.open()
        return not restore.loading

    def reaches(self, sequence: Sequence) -> tuple[Reach | None, ...]:
        """What the tiers below reach in a sequence's prompt, and why that was not brought up."""
        restore = self._restores.get(sequence.ident)
        return () if restore is None else restore.reaches()

    def held_off(self, sequence: Sequence) -> bool:
        """Whether a sequence's load gave way to running ones, and none of them has stopped since.

        Loaded again now it would have to give way again.
        """
        restore = self._restores.get(sequence.ident)
        return restore is not None and restore.dropped_after == self.stops

    def begun(self, sequence: Sequence, reused_tokens: int) -> Restored:
        """The sequence holds what it reuses by itself now; gives what came from below."""
        restore = self._restores.pop(sequence.ident, None)
        if restore is None:
            return Restored()
        if restore.load is not None:
            restore.load.release()
        return restore.result(reused_tokens)

    def drop(self, sequence: Sequence) -> None:
        """A sequence does not wait any more; nothing waits for a copy that is on its way."""
        restore = self._restores.pop(sequence.ident, None)
        if restore is None:
            return
        if restore.prefetch is not None:
            restore.prefetch.release()
        if restore.loading:
            assert restore.load is not None
            self._given_up.append(restore.load)
        elif restore.load is not None:
            restore.load.release()

    def make_room(self) -> bool:
        """Lets go of what has come for sequences that still wait; False when there was nothing.

        They ask again when it is their turn and a running sequence has stopped.
        """
        ended = [restore for restore in self._restores.values() if restore.load and not restore.loading]
        for restore in ended:
            assert restore.load is not None
            restore.load.release()
            restore.load = restore.asked_after = None
            restore.dropped_after = self.stops
        return bool(ended)

    # -- steps -----------------------------------------------------------------------------------------

    def _ask_store(self) -> None:
        """Starts prefetches, oldest first; not two at once for prompts that are alike for the most part."""
        under_way = [restore for restore in self._restores.values() if restore.fetching]
        due = [restore for restore in self._restores.values() if restore.due]
        for restore in due[: 2 * PREFETCHES_AT_ONCE]:
            if len(under_way) >= PREFETCHES_AT_ONCE:
                return
            if covered(restore, under_way):
                continue
            restore.due = False
            restore.prefetch = self._cache.prefetch(restore.tokens, namespace=restore.namespace)
            if restore.fetching:
                under_way.append(restore)

    def _changes(self) -> int:
        """Counts what may make another load possible: evictions, and what came to the host from a store."""
        assert self._cache.lower is not None
        pages = self._cache.lower.flow.pages
        fetched = (count for (_, source, _), count in pages.items() if source is Tier.STORE)
        return sum(self._cache.evicted_slots.values()) + sum(fetched)


def covered(restore: Restore, others: Iterable[Restore]) -> bool:
    """Whether another one brings up half of a prompt or more: the store is asked for the rest afterwards."""
    half = -(-len(restore.tokens) // 2)
    return any(other.covers(restore.namespace, restore.tokens, half) for other in others)


def same_load(restore: Restore, other: Restore) -> bool:
    """Whether another one's load brings a prefix of this prompt: then it is not loaded twice."""
    assert other.load is not None
    return other.covers(restore.namespace, restore.tokens, other.load.boundary_tokens)
