"""Kinds of knowledge of the future, each with an order of eviction that uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from bench.replay.future import GONE, Flags, Floats, Future
from bench.replay.told import Told, ToldDue, ToldGittins, ToldGuess, ToldLru, ToldTime

Tell: TypeAlias = Callable[[Future, np.random.Generator], Floats]
Which: TypeAlias = Callable[[Future], Flags]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of knowledge.

    Attributes:
        order: a new order that uses it.
        tell: what is told, a place a passage; whatever is random in it comes from the generator.
        text: for readers.
        closes: whether sessions are closed when they end.
    """

    order: Callable[[], Told]
    tell: Tell
    text: str
    closes: bool = False


def all_of_it(future: Future) -> Flags:
    return np.ones(len(future.request), dtype=np.bool_)


def nothing(future: Future, random: np.random.Generator) -> Floats:  # noqa: ARG001
    return future.untold


def gone_where(which: Which) -> Tell:
    """That it is never used again, of some of what is not."""
    return lambda future, _: np.where(which(future) & future.is_gone, GONE, future.untold)


def exact_where(which: Which) -> Tell:
    """Everything of some."""
    return lambda future, _: np.where(which(future), future.exact, future.untold)


EVERYTHING = exact_where(all_of_it)


def made_up_where(which: Which, tell_rest: Tell = EVERYTHING) -> Tell:
    """For some of what is never used again a time, drawn from those of what is; for the rest as told."""

    def tell(future: Future, random: np.random.Generator) -> Floats:
        waits = (future.next_use - future.request)[~future.is_gone]
        drawn = random.choice(waits, len(future.request)) if len(waits) else np.zeros(len(future.request))
        rest = tell_rest(future, random)
        return np.where(which(future) & future.is_gone, future.request + drawn, rest)

    return tell


def blurred(factor: float) -> Tell:
    """The time until the next use, times `factor` to the power of a normal number."""

    def tell(future: Future, random: np.random.Generator) -> Floats:
        wait = (future.next_use - future.request) * factor ** random.standard_normal(len(future.request))
        return np.where(future.is_gone, GONE, future.request + wait)

    return tell


KINDS = {
    "close": Kind(
        ToldGittins,
        nothing,
        "nothing; but each session is closed when its last request has ended, as its client could do (rule"
        " S-1). `gittins` as it is",
        closes=True,
    ),
    "ends": Kind(
        ToldGittins,
        gone_where(lambda future: future.is_over),
        "*whether*, in part: that a session has ended, of what it alone has passed; else as `gittins`",
    ),
    "leaves": Kind(
        ToldGittins,
        gone_where(lambda future: ~future.is_over),
        "*whether*, in part: what sessions that go on have left behind, and what several sessions passed and"
        " none will; else as `gittins`",
    ),
    "whether": Kind(ToldLru, gone_where(all_of_it), "whether it is ever used again; else as `lru`"),
    "whether, gittins": Kind(
        ToldGittins, gone_where(all_of_it), "whether it is ever used again; else as `gittins`"
    ),
    "when": Kind(
        ToldDue,
        made_up_where(all_of_it),
        "when, if ever: what is never used again gets a time drawn from those of the rest, and is known to be"
        " gone only when that has passed",
    ),
    "when, 2x": Kind(
        ToldGuess,
        made_up_where(all_of_it, blurred(2.0)),
        "the same to a factor of 2 (as below), and what is late is guessed to come after as long again",
    ),
    "all but ends": Kind(
        ToldDue,
        made_up_where(lambda future: future.is_over),
        "whether and when, but not which sessions end: what they alone have passed gets such a drawn time",
    ),
    "known": Kind(
        ToldGuess,
        exact_where(lambda future: future.is_known),
        "whether and when, but only of what came back before or whose session did; what nothing is told of is"
        " guessed to come back after as long as it has been away",
    ),
    "new": Kind(
        ToldGuess,
        exact_where(lambda future: ~future.is_known),
        "whether and when, but only of what is new and of a new session; the rest is guessed",
    ),
    "both, 4x": Kind(
        ToldGuess,
        blurred(4.0),
        "whether, and when to a factor of 4: the time until then is multiplied by a lognormal number, one"
        " standard deviation of which is that factor",
    ),
    "both, 2x": Kind(ToldGuess, blurred(2.0), "the same to a factor of 2"),
    "both": Kind(ToldTime, EVERYTHING, "whether and when, exactly"),
}
