"""From the engine's thread to the event loop: one bounded queue a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from graftline.engine.api import TokenEvent


@dataclass(frozen=True, slots=True)
class Arrival:
    """An engine event of one choice, and when it came (`time.perf_counter`)."""

    choice: int
    at_s: float
    event: TokenEvent


class EventQueue:
    """Events of one HTTP request's choices, in the order in which the engine gave them.

    The engine's callback never waits: it hands the event to the loop and goes on, so a client that reads
    slowly holds up nobody. The queue cannot grow without bound all the same, since a choice gives at most
    `max_tokens + 1` events.

    Made on the event loop; `sink` may be called from any thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Arrival | Exception] = asyncio.Queue()
        self._closed = False

    def sink(self, choice: int) -> Callable[[TokenEvent], None]:
        """The engine's callback for one choice."""

        def on_event(event: TokenEvent) -> None:
            arrival = Arrival(choice, time.perf_counter(), event)
            with suppress(RuntimeError):  # the loop has ended, and with it all who would listen
                self._loop.call_soon_threadsafe(self._put, arrival)

        return on_event

    async def get(self) -> Arrival:
        """The next event.

        Raises:
            Exception: what `close` was given.
        """
        arrival = await self._queue.get()
        if isinstance(arrival, Exception):
            raise arrival
        return arrival

    def close(self, reason: Exception) -> None:
        """Drops what comes from now on and raises `reason` in `get`, after what is there already."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(reason)

    def _put(self, arrival: Arrival) -> None:
        if not self._closed:
            self._queue.put_nowait(arrival)
