"""Agents' conversations as prompts: lengths of real trajectories, scaled to what this machine can compute."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from bench.serve.models import random_tokens

SHARED_TOKENS = 64
"""All agents begin with the same system prompt of so many tokens."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: which agent, its how manyth turn (from 1), the prompt, and when it comes at the earliest.

    Attributes:
        at: as a share of the time from the first request to the last.
        answer_tokens: how many are generated.
    """

    agent: int
    turn: int
    prompt: tuple[int, ...]
    at: float = 0.0
    answer_tokens: int = 1


def trajectory_lengths(trace: Path, agents: int, turns: int, skip: int = 0) -> list[list[int]]:
    """Prompt lengths of `turns` requests of sessions that have as many behind the first `skip`, as recorded.

    Args:
        trace: requests as JSON lines with `session_id`, `turn` and `input_length`, gzipped.
        agents: how many sessions, the first ones.
        turns: requests of each.
        skip: requests left out at the beginning of each; with more of them prompts are long from the start.
    """
    lengths: dict[str, list[int]] = defaultdict(list)
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        for line in lines:
            request = json.loads(line)
            lengths[request["session_id"]].append(request["input_length"])
    long = [found[skip : skip + turns] for found in lengths.values() if len(found) >= skip + turns]
    growing = [found for found in long if all(a < b for a, b in pairwise(found))]
    return growing[:agents]


def even_lengths(agents: int, turns: int) -> list[list[int]]:
    """Where there is no trace: each turn adds as much as the one before."""
    return [[turn + 4 for turn in range(1, turns + 1)] for _ in range(agents)]


def scaled(lengths: Sequence[Sequence[int]], last_tokens: int) -> list[list[int]]:
    """The same growth, with last prompts of about `last_tokens` tokens, at least one more each turn."""
    result = []
    for one in lengths:
        factor = (last_tokens - SHARED_TOKENS) / one[-1]
        made = [SHARED_TOKENS + max(turn, round(length * factor)) for turn, length in enumerate(one, 1)]
        for turn in range(1, len(made)):
            made[turn] = max(made[turn], made[turn - 1] + 1)
        result.append(made)
    return result


def in_rounds(lengths: Sequence[Sequence[int]], preset: str, seed: int) -> Iterator[Ask]:
    """All agents in turn, in another order each round; an agent's prompt extends its prompt before."""
    rng = np.random.default_rng(seed)
    shared = random_tokens(rng, SHARED_TOKENS, preset)
    texts = [shared + random_tokens(rng, max(one) - SHARED_TOKENS, preset) for one in lengths]
    for turn in range(max(map(len, lengths))):
        for agent in rng.permutation(len(lengths)):
            if turn < len(lengths[agent]):
                yield Ask(int(agent), turn + 1, tuple(texts[agent][: lengths[agent][turn]]))


def by_arrival(trace: Path, requests: int, factor: float, preset: str, seed: int) -> list[Ask]:
    """The first requests of a trace in the order in which they came, with scaled lengths.

    Args:
        trace: requests as JSON lines with `session_id`, `turn`, `timestamp`, `input_length` and
            `output_length`, gzipped.
        requests: how many.
        factor: tokens of a prompt, and of an answer, for each recorded one; an answer has one at least.
    """
    rows = []
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        for line in lines:
            rows.append(json.loads(line))
            if len(rows) == requests:
                break
    rows.sort(key=lambda row: row["timestamp"])
    agents = {name: number for number, name in enumerate(dict.fromkeys(row["session_id"] for row in rows))}
    longest = max(row["input_length"] for row in rows)
    first, last = rows[0]["timestamp"], rows[-1]["timestamp"]
    rng = np.random.default_rng(seed)
    shared = random_tokens(rng, SHARED_TOKENS, preset)
    texts = [shared + random_tokens(rng, round(longest * factor), preset) for _ in agents]
    return [
        Ask(
            agents[row["session_id"]],
            row["turn"] + 1,
            tuple(texts[agents[row["session_id"]]][: SHARED_TOKENS + round(row["input_length"] * factor)]),
            (row["timestamp"] - first) / max(1, last - first),
            max(1, round(row["output_length"] * factor)),
        )
        for row in rows
    ]
