"""Small random traces, and answers found by trying everything."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import numpy as np

from graftline.components import Checkpoint, Full, ReuseRule, Window
from graftline.replay.requests import ReplayRequest
from graftline.replay.tokens import PagedRequest

PAGE = 4

Prefix = tuple[int, ...]


def request(
    pages: Sequence[int],
    *,
    rest: int = 0,
    answer: Sequence[int] = (),
    session: str = "",
    turn: int = 0,
    arrival_s: float = 0.0,
    answer_tokens: int = 0,
) -> PagedRequest:
    """A request of whole pages, and `rest` tokens behind them."""
    prompt, tail = np.array(pages, dtype=np.uint64), np.array(answer, dtype=np.uint64)
    said = ReplayRequest(
        ident=f"request {list(pages)}",
        session=session or f"session of {list(pages)[:1]}",
        turn=turn,
        arrival_s=arrival_s,
        think_s=None,
        prompt_tokens=len(prompt) * PAGE + rest,
        answer_tokens=answer_tokens,
        unit_tokens=PAGE,
        prompt_ids=prompt,
        answer_ids=tail,
    )
    return PagedRequest(said, prompt, tail, rest > 0)


def random_trace(
    seed: int, requests: int, *, depth: int = 6, branches: int = 3, always_rest: bool = False
) -> list[PagedRequest]:
    """Paths in a small tree of pages, some continued from earlier ones, some with answers."""
    random_ = random.Random(seed)
    paths: list[list[int]] = []
    trace = []
    for number in range(requests):
        start: list[int] = []
        if paths and random_.random() < 0.6:
            earlier = random_.choice(paths)
            start = earlier[: random_.randint(0, len(earlier))]
        path = start + [
            random_.randrange(branches) for _ in range(random_.randint(0, depth - min(depth, len(start))))
        ]
        rest = random_.randint(1, PAGE - 1) if always_rest or not path or random_.random() < 0.6 else 0
        answer = [random_.randrange(branches) for _ in range(random_.choice((0, 0, 1, 2)))]
        paths.append(path + answer)
        trace.append(request(path, rest=rest, answer=answer, session=str(number % 3), arrival_s=number * 1.0))
    return trace


def subsets(items: Sequence[Prefix], most: int) -> chain[tuple[Prefix, ...]]:
    """All subsets of at most `most` items."""
    return chain.from_iterable(combinations(items, size) for size in range(min(most, len(items)) + 1))


def prefixes(path: Sequence[int]) -> list[Prefix]:
    """The pages of a path, each named by all pages up to it."""
    return [tuple(path[: end + 1]) for end in range(len(path))]


def needed(rule: ReuseRule, boundary: int, pages: Sequence[Prefix]) -> set[Prefix]:
    """Pages that a boundary needs."""
    return set(pages[rule.first_page(boundary, PAGE) : boundary])


def own_slots(rule: ReuseRule, paged: PagedRequest, path_pages: int) -> int:
    """Slots that a request needs for itself at once."""
    if isinstance(rule, Full):
        return paged.occupied_pages
    if isinstance(rule, Window):
        return min(path_pages, -(-rule.lookback_tokens // PAGE))
    assert isinstance(rule, Checkpoint)
    return 1


def best_by_trying(trace: Sequence[PagedRequest], pools: Sequence[tuple[ReuseRule, int]]) -> int:
    """Most pages that any schedule reuses, by trying every choice of what is kept beside each request.

    What a request passes is there for every component afterwards, as far as its pool has room later.
    Requests that a prefix-closed pool cannot hold are left out.
    """
    closed = [slots for rule, slots in pools if rule.prefix_closed]
    served = [paged for paged in trace if not closed or paged.occupied_pages <= min(closed)]
    paths = [prefixes([*map(int, paged.pages), *map(int, paged.answer)]) for paged in served]

    @cache
    def best(time: int, kept: tuple[frozenset[Prefix], ...]) -> int:
        if time == len(served):
            return 0
        paged, pages = served[time], paths[time]
        won = max(
            boundary
            for boundary in range(paged.limit_pages + 1)
            if all(needed(rule, boundary, pages) <= held for (rule, _), held in zip(pools, kept, strict=True))
        )
        choices = [
            beside(rule, slots - own_slots(rule, paged, len(pages)), held, pages)
            for (rule, slots), held in zip(pools, kept, strict=True)
        ]
        return won + max(best(time + 1, combined) for combined in every(choices))

    return best(0, tuple(frozenset() for _ in pools))


def beside(
    rule: ReuseRule, room: int, held: frozenset[Prefix], path: Sequence[Prefix]
) -> list[frozenset[Prefix]]:
    """What can be kept beside a request's path, together with the path."""
    others = sorted(held - set(path))
    found = []
    for kept in subsets(others, room) if room >= 0 else [()]:
        whole = frozenset(kept) | frozenset(path)
        if not rule.prefix_closed or all(len(page) == 1 or page[:-1] in whole for page in whole):
            found.append(whole)
    return found


def every(choices: Sequence[Sequence[frozenset[Prefix]]]) -> list[tuple[frozenset[Prefix], ...]]:
    """One choice of each, in all ways."""
    combined: list[tuple[frozenset[Prefix], ...]] = [()]
    for options in choices:
        combined = [(*before, option) for before in combined for option in options]
    return combined


def write_lines(path: Path, *lines: object) -> Path:
    """A file with a JSON value a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
