"""What there is to tell of a trace's future: who is used again, when, and which sessions end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graftline.cache.inference import Inference
from graftline.cache.sessions import SessionLimits
from graftline.key import Namespace
from graftline.replay.forest import NEVER, Counts, Passages
from graftline.replay.tokens import KEY_TOKENS, PagedRequest, answer_key, prompt_key

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
GONE = -1.0
"""Told of what is never used again."""
SEVERAL = ""
"""Stands for more than one session."""


@dataclass(frozen=True, slots=True)
class Future:
    """What there is to tell, a place a passage of a run.

    Attributes:
        passages: those of the requests that can be served.
        request: whose passage it is.
        next_use: the request that wants the run next; `NEVER` where the next to pass it does not want it.
        is_known: whether the run, or the session of the request, was seen to come back before.
        is_alone: whether no other session passed the run so far.
        names: the session of each request.
        is_last: whether it is the last one of its session, a place a request.
    """

    passages: Passages
    request: Counts
    next_use: Counts
    is_known: Flags
    is_alone: Flags
    names: Sequence[str]
    is_last: Flags

    @property
    def is_gone(self) -> Flags:
        """Whether the run is never used again."""
        gone: Flags = self.next_use == NEVER
        return gone

    @property
    def is_over(self) -> Flags:
        """Whether a run was passed by one session alone, for the last time, as that session has ended."""
        return self.is_last[self.request] & self.is_alone

    @property
    def untold(self) -> Floats:
        """What stands for nothing told: the last use."""
        return self.request.astype(np.float64)

    @property
    def exact(self) -> Floats:
        """Everything told."""
        return np.where(self.is_gone, GONE, self.next_use)


def future_of(trace: Iterable[PagedRequest], ahead: Passages, capacity_pages: int) -> Future:
    """Looks ahead. Goes through the trace once."""
    served = ahead.served(capacity_pages)
    request, after = served.request_of(), served.after()
    is_used = (after != NEVER) & served.wanted[after]
    names = session_names(trace, (np.diff(served.first) > 0).tolist())
    numbers = range(len(names))
    last_of = {name: number for number, name in enumerate(names)}
    first_of = {names[number]: number for number in reversed(numbers)}
    is_last = np.array([last_of[names[number]] == number for number in numbers], dtype=np.bool_)
    is_later = np.array([first_of[names[number]] < number for number in numbers], dtype=np.bool_)
    return Future(
        passages=served,
        request=request,
        next_use=np.where(is_used, request[after], NEVER),
        is_known=is_later[request] | (served.before() != NEVER),
        is_alone=passed_alone(served, names),
        names=names,
        is_last=is_last,
    )


def session_names(trace: Iterable[PagedRequest], is_served: Sequence[bool]) -> list[str]:
    """The session of each request: as the trace names it, else inferred as the cache does (rule S-9)."""
    inference = Inference((), KEY_TOKENS, SessionLimits())
    names = []
    for number, (paged, served) in enumerate(zip(trace, is_served, strict=True)):
        told = paged.request
        if told.session != told.ident or not served:
            names.append(f"told {told.session}" if served else f"refused {number}")
            continue
        prompt = prompt_key(paged)
        inference.set_time(told.arrival_s)
        inferred = inference.begin(Namespace(), prompt)
        inference.finish(inferred, Namespace(), np.concatenate([prompt, answer_key(paged)]), len(prompt))
        names.append(inferred.name)
    return names


def passed_alone(passages: Passages, names: Sequence[str]) -> Flags:
    """For each passage, whether one session alone passed the run so far."""
    owner: dict[int, str] = {}
    alone = np.zeros(len(passages.run), dtype=np.bool_)
    for place, (run, number) in enumerate(
        zip(passages.run.tolist(), passages.request_of().tolist(), strict=True)
    ):
        name = names[number]
        owner[run] = name if owner.get(run, name) == name else SEVERAL
        alone[place] = owner[run] == name
    return alone
