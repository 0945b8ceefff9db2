"""Matches on other threads beside the owner of the Rust core (rule D-3): their cost, and that they are right.

    python -m bench.core.readers
    python -m bench.core.readers --seconds 10 --readers 0,1,2,4,8

The owner takes turns of many conversations and evicts; readers match the same texts, as a router or a
scheduler that orders its queue does. First every match of every reader is compared with the states between
the owner's operations; then, without that bookkeeping, the turns and matches of each second are counted. On a
machine with fewer idle cores than threads, a slowdown is the readers' share of the cores too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.core.load import random_tokens
from bench.core.shapes import NAMESPACE, SHAPES, SlotSource

from graftline.key import Tokens
from graftline.plan import Match
from graftline.tree import TreeCore

SHAPE = SHAPES[-1]
PAGE_TOKENS = 16
TEXTS = 8
TEXT_TOKENS = 32_768
STEP_TOKENS = 512
EVICTED_PAGES = STEP_TOKENS // PAGE_TOKENS
Answer = tuple[object, ...]


def answer(found: Match) -> Answer:
    """What a match tells, without the handles of nodes, which a split changes."""
    votes = tuple((vote.component, vote.boundary_tokens, vote.without_tokens) for vote in found.votes)
    return (
        found.boundary_tokens,
        found.path_tokens,
        found.limited_by,
        found.reason,
        found.branch_tokens,
        votes,
    )


@dataclass
class Owner:
    """The one thread that changes the tree: each text grows by a turn in its turn, and old pages leave."""

    core: TreeCore
    texts: Sequence[Tokens]
    slots: SlotSource = field(default_factory=SlotSource)
    turns: int = 0

    def turn(self) -> Iterator[None]:
        """One turn; stops behind each operation that changes the tree, so that it can be looked at there."""
        core, text = self.core, self.texts[self.turns % len(self.texts)]
        self.turns += 1
        found = core.match(NAMESPACE, text)
        start = found.boundary_tokens
        if start >= len(text):
            core.clear()
            yield
            return
        lease = core.lease(found)
        yield
        end = start + STEP_TOKENS
        values = self.slots.values(SHAPE, start // PAGE_TOKENS, end // PAGE_TOKENS, PAGE_TOKENS)
        core.insert(lease, text[start:end], values)
        yield
        core.release(lease)
        yield
        if self.turns % 3 == 0:
            core.evict("full", EVICTED_PAGES)
            yield
        if self.turns % 5 == 0:
            core.evict("state", 1)
            yield


def new_owner(text_tokens: int = TEXT_TOKENS) -> Owner:
    texts = [random_tokens(text_tokens, seed) for seed in range(TEXTS)]
    return Owner(SHAPE.core("rust", PAGE_TOKENS), texts)


@contextmanager
def beside(readers: int, look: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs `look` on other threads until the block ends."""
    stop = threading.Event()
    threads = [threading.Thread(target=look, args=(stop,)) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def verify(readers: int, operations: int, text_tokens: int = TEXT_TOKENS) -> int:
    """Compares what readers see with the states between the owner's operations.

    Returns:
        How many matches were compared.

    Raises:
        AssertionError: a match that equals none of the states that the tree had while it ran.
    """
    owner = new_owner(text_tokens)
    keys = owner.texts
    states: list[list[Answer]] = [[answer(owner.core.match(NAMESPACE, key)) for key in keys]]
    seen: list[tuple[int, int, int, Answer]] = []
    started = threading.Semaphore(0)

    def look(stop: threading.Event) -> None:
        mine: list[tuple[int, int, int, Answer]] = []
        while not stop.is_set():
            for place, key in enumerate(keys):
                before = len(states) - 1
                told = answer(owner.core.match(NAMESPACE, key))
                mine.append((place, before, len(states), told))
            if len(mine) == len(keys):
                started.release()
        seen.extend(mine)

    with beside(readers, look):
        for _ in range(readers):
            started.acquire()
        while len(states) <= operations:
            for _ in owner.turn():
                states.append([answer(owner.core.match(NAMESPACE, key)) for key in keys])  # noqa: PERF401
    owner.core.check()
    for place, first, last, told in seen:
        possible = {states[number][place] for number in range(first, min(last + 1, len(states)))}
        assert told in possible, f"text {place}: {told} is none of {possible}"
    return len(seen)


@dataclass(frozen=True, slots=True)
class Rates:
    """In one second of wall time; `turn_us` is the owner's median, `turn_p99_us` its slowest hundredth."""

    readers: int
    turns_per_s: float
    turn_us: float
    turn_p99_us: float
    matches_per_s: float


def measure(readers: int, seconds: float) -> Rates:
    owner, counts, samples = new_owner(), [], []

    def look(stop: threading.Event) -> None:
        count = 0
        while not stop.is_set():
            for key in owner.texts:
                owner.core.match(NAMESPACE, key)
            count += len(owner.texts)
        counts.append(count)

    began = time.perf_counter()
    with beside(readers, look):
        while (now := time.perf_counter()) - began < seconds:
            deque(owner.turn(), maxlen=0)
            samples.append((time.perf_counter() - now) * 1e6)
        spent = time.perf_counter() - began
    slowest = sorted(samples)[int(0.99 * len(samples))]
    return Rates(readers, owner.turns / spent, statistics.median(samples), slowest, sum(counts) / spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="for each number of readers")
    parser.add_argument("--readers", default="0,1,2,3,4", help="numbers of reading threads, by comma")
    parser.add_argument(
        "--operations", type=int, default=2_000, help="of the owner, while matches are compared"
    )
    arguments = parser.parse_args()
    sys.setswitchinterval(0.0005)  # the owner waits less for the interpreter's lock
    for readers in (1, 4):
        compared = verify(readers, arguments.operations)
        print(f"{readers} readers: {compared:,} matches, each equal to a state between two operations")
    print(f"{'readers':>8} {'turns/s':>10} {'slower':>7} {'turn µs':>9} {'p99 µs':>9} {'matches/s':>10}")
    alone = 0.0
    for readers in (int(number) for number in arguments.readers.split(",")):
        rates = measure(readers, arguments.seconds)
        alone = alone or rates.turns_per_s
        slower = alone / rates.turns_per_s
        print(
            f"{readers:>8} {rates.turns_per_s:>10,.0f} {slower:>6.2f}x {rates.turn_us:>9,.1f}"
            f" {rates.turn_p99_us:>9,.1f} {rates.matches_per_s:>10,.0f}"
        )


if __name__ == "__main__":
    main()
