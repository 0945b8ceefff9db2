"""What waiting sequences bring up from the tiers below before they run (rule X-8).

A sequence that is about to be admitted first asks the cache for a load. While that is on its way it waits,
counts as one that runs, and those behind it may go on. What has come is protected until the sequence has
begun, or until a running one needs the room.
"""

from __future__ import annotations

from dataclasses import dataclass

from graftline.cache import Load, PrefixCache
from graftline.engine.coalesce import common_tokens
from graftline.engine.sequence import Sequence
from graftline.key import Namespace, Tokens


LOADS_AT_ONCE = 2
"""What they bring takes room on the device before its sequence runs."""


@dataclass(slots=True)
class Restore:
    """One sequence's load. `asked_after` tells how much had been evicted when the cache was asked."""

    namespace: Namespace
    tokens: Tokens
    load: Load | None
    asked_after: int

    @property
    def done(self) -> bool:
        """Whether the sequence may begin."""
        return self.load is None or self.load.done


class Restores:
    """The loads of all waiting sequences. Owned by the engine's thread."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self._restores: dict[int, Restore] = {}
        self._given_up: list[Load] = []

    @property
    def under_way(self) -> int:
        """Sequences that wait for a load."""
        return sum(not restore.done for restore in self._restores.values())

    @property
    def busy(self) -> bool:
        """Whether any load has not ended, wanted or not; when it ends the engine is woken."""
        return bool(self.under_way or self._given_up)

    def pump(self) -> None:
        """Ends what has ended."""
        self._cache.pump()
        for load in [load for load in self._given_up if load.done]:
            load.release()
            self._given_up.remove(load)

    def ready(self, sequence: Sequence, namespace: Namespace) -> bool:
        """Whether a sequence need not wait for a load; asks for one when there is something to load."""
        if self._cache.lower is None:
            return True
        restore = self._restores.get(sequence.ident)
        if restore is None or (restore.load is None and restore.asked_after != self._evicted()):
            if self.under_way >= LOADS_AT_ONCE or self._same_under_way(sequence, namespace):
                return False
            load = self._cache.load(sequence.tokens, namespace=namespace)
            restore = Restore(namespace, sequence.tokens, load, self._evicted())
            self._restores[sequence.ident] = restore
        return restore.done

    def begun(self, sequence: Sequence) -> Load | None:
        """The sequence holds what it reuses by itself now. Gives its load, which has ended."""
        restore = self._restores.pop(sequence.ident, None)
        if restore is None or restore.load is None:
            return None
        restore.load.release()
        return restore.load

    def drop(self, sequence: Sequence) -> None:
        """A sequence does not want its load any more; nothing waits for a copy that is on its way."""
        restore = self._restores.pop(sequence.ident, None)
        if restore is not None and restore.load is not None:
            self._give_up(restore.load)

    def make_room(self) -> bool:
        """Lets go of what has come for sequences that still wait; False when there was nothing.

        They ask again when it is their turn.
        """
        ended = [ident for ident, restore in self._restores.items() if restore.load and restore.done]
        for ident in ended:
            load = self._restores.pop(ident).load
            assert load is not None
            load.release()
        return bool(ended)

    def _give_up(self, load: Load) -> None:
        if load.done:
            load.release()
        else:
            self._given_up.append(load)

    def _same_under_way(self, sequence: Sequence, namespace: Namespace) -> bool:
        """Whether another one's load brings a prefix of this prompt: then it is not loaded twice."""
        return any(
            other.load is not None
            and not other.done
            and other.namespace == namespace
            and common_tokens(sequence.tokens, other.tokens) >= other.load.boundary_tokens
            for other in self._restores.values()
        )

    def _evicted(self) -> int:
        return sum(self._cache.evicted_slots.values())
