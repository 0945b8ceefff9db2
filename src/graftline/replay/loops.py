"""Requests that overlap: by their arrival times, or by clients who wait for each answer.

A small model of a server: prompts are computed one after another, in the order in which requests came;
up to `running_max` requests generate beside each other. From its start to its end each holds its leases
and its slots in the real cache, so others find less room, as in a server.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graftline.cache import CachedRequest
from graftline.errors import CapacityError, ConfigError
from graftline.replay.forest import Step
from graftline.replay.simulate import Progress, Replayer, Setup, no_progress
from graftline.replay.tally import RunFigures
from graftline.replay.tokens import KEY_TOKENS, PagedRequest

ARRIVED, PROMPT_DONE, ANSWER_DONE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An open loop: requests come at their times, `speed` times as fast as in the trace."""

    speed: float = 1.0

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise ConfigError(f"speed is {self.speed}, it must be above 0")


@dataclass(frozen=True, slots=True)
class Clients:
    """A closed loop: so many clients play sessions one after another; each waits for its answer, thinks
    as long as the trace says, or `think_s` where it does not, and sends the session's next request."""

    count: int = 16
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"{self.count} clients cannot send anything")
        if self.think_s < 0:
            raise ConfigError(f"think_s is {self.think_s}, it must not be negative")


@dataclass(slots=True)
class Job:
    """A request on its way; `followers` are the later requests of its session, in a closed loop."""

    paged: PagedRequest
    arrival_s: float
    followers: deque[PagedRequest]
    running: CachedRequest | None = None


class Service:
    """The server's events in order of time.

    Args:
        replayer: serves from the cache.
        running_max: most requests at once.

    Attributes:
        steps: prompts and answers that were computed, in order.
    """

    def __init__(self, replayer: Replayer, running_max: int, progress: Progress) -> None:
        if running_max < 1:
            raise ConfigError(f"running_max is {running_max}, it must be at least 1")
        self.replayer = replayer
        self.cost = replayer.setup.cost
        self.running_max = running_max
        self.progress = progress
        self.now_s = 0.0
        self.running = 0
        self.computing = False
        self.waiting: deque[Job] = deque()
        self.steps: list[Step] = []
        self._events: list[tuple[float, int, int, Job]] = []
        self._number = 0

    def at(self, moment_s: float, kind: int, job: Job) -> None:
        """Something that will happen."""
        self._number += 1
        heapq.heappush(self._events, (moment_s, self._number, kind, job))

    def play(self, source: Iterator[Job], sessions: Iterator[deque[PagedRequest]], think_s: float) -> None:
        """Until nothing is left: requests of `source` as they come, and followers after their answers."""
        upcoming = next(source, None)
        while upcoming is not None or self._events:
            if upcoming is not None and not (self._events and self._events[0][0] <= upcoming.arrival_s):
                self.at(upcoming.arrival_s, ARRIVED, upcoming)
                upcoming = next(source, None)
            self.now_s, _, kind, job = heapq.heappop(self._events)
            self.replayer.cache.set_time(self.now_s)
            if kind == ARRIVED:
                self._arrived(job, sessions, think_s)
            elif kind == PROMPT_DONE:
                self.computing = False
                self.at(self.now_s + self.cost.answer_s(job.paged.request.answer_tokens), ANSWER_DONE, job)
            else:
                self._answered(job)
                self._follow(job, sessions, think_s)
            self._start()

    def _arrived(self, job: Job, sessions: Iterator[deque[PagedRequest]], think_s: float) -> None:
        if self.replayer.arrive(job.paged):
            self.waiting.append(job)
        else:
            self.progress(1)
            self._follow(job, sessions, think_s)

    def _start(self) -> None:
        """Starts the first request that waits, if the server is free and the pools have room."""
        if self.computing or not self.waiting or self.running == self.running_max:
            return
        job = self.waiting[0]
        try:
            job.running = self.replayer.begin(job.paged, beside_others=self.running > 0)
        except CapacityError:
            if self.running == 0:  # nobody is there to wait for: the pools were checked to hold any one
                raise
            return
        self.waiting.popleft()
        self.steps.append(Step(job.paged, is_answer=False))
        self.running += 1
        self.computing = True
        request, match = job.paged.request, job.running.match
        reused_pages = match.boundary_tokens // KEY_TOKENS
        computed = request.prompt_tokens - reused_pages * self.replayer.setup.page_tokens
        service_s = self.cost.first_token_s(computed)
        first_token_s = self.now_s - job.arrival_s + service_s
        self.replayer.tally.served(request.turn, request.prompt_tokens, match, first_token_s)
        self.at(self.now_s + service_s, PROMPT_DONE, job)

    def _answered(self, job: Job) -> None:
        assert job.running is not None
        try:
            self.replayer.finish(job.paged, job.running)
            self.steps.append(Step(job.paged, is_answer=True))
        except CapacityError:
            self.replayer.tally.unkept_answers += 1
        job.running = None
        self.running -= 1
        self.progress(1)

    def _follow(self, job: Job, sessions: Iterator[deque[PagedRequest]], think_s: float) -> None:
        """The client of a job goes on: with the session's next request, or with another session."""
        session = job.followers or next(sessions, deque())
        if not session:
            return
        pause_s = 0.0
        paged = session.popleft()
        if session is job.followers:
            pause_s = think_s if paged.request.think_s is None else paged.request.think_s
        self.at(self.now_s + pause_s, ARRIVED, Job(paged, self.now_s + pause_s, session))


def play(
    trace: Iterable[PagedRequest],
    setup: Setup,
    loop: Arrivals | Clients,
    *,
    running_max: int = 64,
    progress: Progress = no_progress,
) -> tuple[RunFigures, list[Step]]:
    """Replays a trace with requests that overlap; tells also in which order things were computed.

    Args:
        trace: the requests. `Clients` keep all of it in memory.
        setup: what is replayed.
        loop: when requests come.
        running_max: most requests at once.
        progress: told how many requests have ended since the last time.

    Raises:
        ConfigError: for `Arrivals`, arrival times that go back.
    """
    started = time.perf_counter()
    replayer = Replayer(setup)
    service = Service(replayer, running_max, progress)
    if isinstance(loop, Arrivals):
        service.play(arriving(trace, loop), iter(()), 0.0)
    else:
        sessions = by_session(trace)
        first = [session for _, session in zip(range(loop.count), sessions, strict=False)]
        jobs = [Job(session.popleft(), 0.0, session) for session in first]
        service.play(iter(jobs), sessions, loop.think_s)
    return replayer.figures(service.now_s, time.perf_counter() - started), service.steps


def arriving(trace: Iterable[PagedRequest], loop: Arrivals) -> Iterator[Job]:
    """Requests at their times, the first one at 0."""
    first_s: float | None = None
    latest_s = 0.0
    for paged in trace:
        if first_s is None:
            first_s = paged.request.arrival_s
        moment_s = (paged.request.arrival_s - first_s) / loop.speed
        if moment_s < latest_s:
            raise ConfigError(
                f"request '{paged.request.ident}' arrived before the one in front of it",
                hint="replay this trace in a closed loop, or one request at a time",
            )
        latest_s = moment_s
        yield Job(paged, moment_s, deque())


def by_session(trace: Iterable[PagedRequest]) -> Iterator[deque[PagedRequest]]:
    """The requests of each session, in the order in which the sessions begin."""
    sessions: dict[str, deque[PagedRequest]] = {}
    for paged in trace:
        sessions.setdefault(paged.request.session, deque()).append(paged)
    return iter(list(sessions.values()))
