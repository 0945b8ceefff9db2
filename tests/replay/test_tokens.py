"""Pages and keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graftline.errors import ConfigError
from graftline.replay.formats import FileTrace
from graftline.replay.requests import NO_IDS, ReplayRequest
from graftline.replay.tokens import PagedRequest, PagedTrace, Pager, answer_key, key_words, prompt_key
from replay.support import request, write_lines


def blocks(ids, *, prompt_tokens: int, unit_tokens: int, answer=(), answer_tokens: int = 0) -> ReplayRequest:
    said = request([]).request
    return replace(
        said,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        unit_tokens=unit_tokens,
        prompt_ids=np.array(ids, dtype=np.uint64),
        answer_ids=np.array(answer, dtype=np.uint64),
    )


def cut(said: ReplayRequest, page_tokens: int = 0, **options) -> PagedRequest:
    return Pager(page_tokens, **options).pages(said)


def test_a_page_is_a_block_unless_told() -> None:
    paged = cut(blocks([3, 4, 5], prompt_tokens=1200, unit_tokens=512))
    assert (paged.pages.tolist(), paged.has_rest) == ([3, 4], True)  # the third block is not whole


@pytest.mark.parametrize(("prompt_tokens", "limit", "occupied"), [(1024, 1, 2), (1025, 2, 3), (100, 0, 1)])
def test_limit_and_room(prompt_tokens: int, limit: int, occupied: int) -> None:
    paged = cut(blocks([3, 4, 5], prompt_tokens=prompt_tokens, unit_tokens=512))
    assert (paged.limit_pages, paged.occupied_pages) == (limit, occupied)


def test_long_blocks_are_cut_into_pages() -> None:
    paged = cut(blocks([3, 4], prompt_tokens=1000, unit_tokens=512), 128)
    assert paged.pages.tolist() == [12, 13, 14, 15, 16, 17, 18]  # seven whole pages of 1000 tokens


def test_short_blocks_are_put_together() -> None:
    pager = Pager(32)
    first = pager.pages(blocks([1, 2, 3, 4, 5], prompt_tokens=83, unit_tokens=16))
    second = pager.pages(blocks([1, 2, 3, 9], prompt_tokens=64, unit_tokens=16))
    assert first.pages.tolist() == [0, 1]
    assert second.pages.tolist() == [0, 2]


def test_an_answer_begins_with_the_prompts_rest() -> None:
    paged = cut(blocks([1, 2], prompt_tokens=37, unit_tokens=16, answer=[7, 8]))
    assert (paged.pages.tolist(), paged.answer.tolist(), paged.has_rest) == ([1, 2], [7, 8], True)
    assert paged.occupied_pages == 4
    tokens = cut(blocks([1, 2, 3, 4, 5], prompt_tokens=5, unit_tokens=1, answer=[6, 7, 8, 9]), 4)
    assert (len(tokens.pages), len(tokens.answer), tokens.has_rest) == (1, 1, True)


def test_answers_without_names_take_pages_of_their_own() -> None:
    pager = Pager(16, unnamed_answers=True)
    said = blocks([1, 2], prompt_tokens=37, unit_tokens=16, answer_tokens=30)
    first, second = pager.pages(said), pager.pages(said)
    assert len(first.answer) == len(second.answer) == (37 + 30) // 16 - 2
    assert not set(first.answer.tolist()) & set(second.answer.tolist())
    assert cut(said).answer.tolist() == []


def test_pages_that_do_not_fit_the_blocks_are_refused() -> None:
    with pytest.raises(ConfigError, match="blocks of 16 tokens, which do not fit pages of 24"):
        cut(blocks([1], prompt_tokens=16, unit_tokens=16), 24)
    pager = Pager(16)
    pager.pages(blocks([1], prompt_tokens=16, unit_tokens=16))
    with pytest.raises(ConfigError, match="those before have 16"):
        pager.pages(blocks([1], prompt_tokens=16, unit_tokens=8))
    with pytest.raises(ConfigError, match="must not be negative"):
        Pager(-1)


def test_keys_are_equal_exactly_when_the_pages_are() -> None:
    ids = np.array([0, 1, 2**32, 2**33 + 7, 2**62 + 5], dtype=np.uint64)
    words = key_words(ids).reshape(-1, 2)
    assert len({tuple(pair) for pair in words.tolist()}) == len(ids)
    assert key_words(NO_IDS).tolist() == []


@pytest.mark.parametrize("rest", [0, 1])
def test_prompt_and_answer_make_one_path(rest: int) -> None:
    paged = request([2**40, 6], rest=rest, answer=[2**50, 8])
    whole = np.concatenate([prompt_key(paged), answer_key(paged)])
    assert whole.tolist() == key_words(np.array([2**40, 6, 2**50, 8], dtype=np.uint64)).tolist()
    assert len(prompt_key(paged)) == 4 + rest


def test_a_trace_is_the_same_in_every_pass_kept_or_not(tmp_path: Path) -> None:
    lines = [{"tokens": list(range(number, 40)), "answer": [1] * 9} for number in (0, 0, 3)]
    path = write_lines(tmp_path / "t.jsonl", *lines)
    passes = []
    for kept_pages_max in (0, 1000):
        trace = PagedTrace(FileTrace(path), unnamed_answers=True, kept_pages_max=kept_pages_max)
        passes += [[(p.pages.tolist(), p.answer.tolist()) for p in trace] for _ in range(3)]
    assert all(one == passes[0] for one in passes)
    assert len(passes[0]) == 3
