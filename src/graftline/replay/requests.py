"""What a trace says of one request, whatever format it came in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.uint64]

NO_IDS: Ids = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """One request of a trace.

    Its content is named in units of `unit_tokens` tokens: single tokens where the trace has text or token
    ids, else blocks. Two units are the same content exactly when their ids, and all ids before, are equal.

    Attributes:
        ident: names the request, for messages.
        session: conversation that it belongs to; requests of one session come one after another.
        turn: how many requests of its session came before.
        arrival_s: when it came, in seconds from any start; 0 when the trace does not tell.
        think_s: pause between the answer before and this request, or None when the trace does not tell.
        prompt_tokens: length of the prompt.
        answer_tokens: length of the answer, 0 when the trace does not tell.
        unit_tokens: tokens a unit; the last unit of a prompt may have fewer.
        prompt_ids: units of the prompt, shape (units,), u64.
        answer_ids: units that continue the prompt's path when the answer is computed, as far as the trace
            names them, shape (units,), u64. Where the prompt ends inside a unit that is not in
            `prompt_ids`, the first one begins with the prompt's rest.
    """

    ident: str
    session: str
    turn: int
    arrival_s: float
    think_s: float | None
    prompt_tokens: int
    answer_tokens: int
    unit_tokens: int
    prompt_ids: Ids
    answer_ids: Ids


class Requests(Protocol):
    """Requests that can be gone through again and again, always the same in the same order."""

    name: str
    empty_prompts: int
    """Requests without a token, left out of the last pass."""

    def __iter__(self) -> Iterator[ReplayRequest]:
        """From the first one."""
