"""Every served family: packed steps give the logits of the library's plain forward, in every mode.

The reference is one forward of the whole sequence without a cache. All pools start full of NaN and all slots
are in random order, so reading a wrong or unwritten place shows. `runner_support.BOUND` is the tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from runner_support import (
    LENGTHS,
    SERVED,
    advance,
    advance_all,
    assert_equal,
    make_runner,
    prompt,
    reference,
)

from graftline.engine.layouts import STATE

ODD_CHUNKS = (7, 1, 13, 5, 1, 11, 1, 1, 21)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("family", SERVED)
def test_any_cut_of_one_sequence(family: str) -> None:
    runner, pools = make_runner(family, 4)
    tokens = prompt(1, LENGTHS[0])
    expected = reference(family, tuple(tokens))
    for chunks in ((len(tokens),), ODD_CHUNKS, (1,) * len(tokens)):
        assert_equal(advance_all(runner, pools.sequence(tokens), chunks), expected)


@pytest.mark.parametrize("family", SERVED)
def test_rows_of_different_lengths_in_one_step(family: str) -> None:
    """Prefill chunks, first chunks and decode rows mixed, in an order unlike the packed one."""
    runner, pools = make_runner(family, 4)
    prompts = [prompt(number, length) for number, length in enumerate(LENGTHS)]
    sequences = [pools.sequence(tokens) for tokens in prompts]
    expected = [reference(family, tuple(tokens)) for tokens in prompts]
    plan = [
        ((0, 20), (1, 9)),
        ((0, 1), (1, 1), (2, 13)),
        ((2, 1), (0, 7), (1, 7)),
        ((1, 1), (2, 1), (0, 1)),
        ((2, 5), (0, 5), (1, 11)),
        *(((0, 1), (1, 1), (2, 1)),) * 14,
        ((0, 13), (1, 4)),
    ]
    for parts in plan:
        logits = advance(runner, [(sequences[i], n) for i, n in parts])
        for row, (i, _) in enumerate(parts):
            last = sequences[i].start - 1
            assert_equal(logits[row], expected[i][last])
    assert [sequence.start for sequence in sequences] == list(LENGTHS)


@pytest.mark.parametrize("page_tokens", [1, 4, 16])
@pytest.mark.parametrize("family", SERVED)
def test_sharing_a_prefix(family: str, page_tokens: int) -> None:
    """A second sequence takes over pages by reference and the state by copy, while the first goes on."""
    runner, pools = make_runner(family, page_tokens)
    page = runner.page_tokens
    boundary = 32 if page == 16 else 24 if page > 1 else 23
    parent_tokens = prompt(1, LENGTHS[0])
    child_tokens = np.concatenate([parent_tokens[:boundary], prompt(5, 17)])
    parent = pools.sequence(parent_tokens)
    advance_all(runner, parent, (11, 9, boundary - 20) if STATE in runner.pools else (11, 24))
    saved = pools.save(parent)
    advance(runner, [(parent, 2)])

    child = pools.fork(parent, child_tokens, boundary, saved)
    logits = advance(runner, [(child, 3), (parent, 1)])
    assert_equal(logits, _last_logits(family, child, parent))
    logits = advance(runner, [(parent, 5), (child, 5)])
    assert_equal(logits, _last_logits(family, parent, child))
    for _ in range(4):
        logits = advance(runner, [(child, 1), (parent, 1)])
        assert_equal(logits, _last_logits(family, child, parent))

    late = pools.fork(parent, child_tokens, boundary, saved)
    assert_equal(advance_all(runner, late, (17,)), reference(family, tuple(child_tokens))[boundary:])


def _last_logits(family: str, *sequences) -> torch.Tensor:
    return torch.stack([reference(family, tuple(s.tokens))[s.start - 1] for s in sequences])


@pytest.mark.parametrize("family", SERVED)
def test_restoring_is_bitwise_equal(family: str) -> None:
    """The same chunks after a restored boundary as without a break: equal bit for bit."""
    runner, pools = make_runner(family, 8)
    tokens = prompt(2, LENGTHS[0])
    boundary, rest = 24, (9, 1, 1, 26)
    whole = pools.sequence(tokens)
    advance_all(runner, whole, (13, 11))
    saved = pools.save(whole)
    uninterrupted = advance_all(runner, whole, rest)
    restored = advance_all(runner, pools.fork(whole, tokens, boundary, saved), rest)
    assert torch.equal(restored, uninterrupted)


@pytest.mark.parametrize(
    "family", ["gemma3", "gpt_oss", "llama4", "inkling", "kimi_linear", "lfm3", "dots3_note"]
)
def test_decoding_rows_of_very_different_lengths(family: str) -> None:
    """Too far apart to be padded to one length: several attention calls in one step."""
    runner, pools = make_runner(family, 16)
    prompts = [prompt(number, length) for number, length in enumerate((620, 41, 300, 38))]
    sequences = [pools.sequence(tokens) for tokens in prompts]
    for sequence in sequences:
        advance(runner, [(sequence, len(sequence.tokens) - 5)])
    for sizes in ((1, 1, 1, 1), (1, 2, 1, 2), (1, 1, 2, 1), (1, 1, 1, 1)):
        logits = advance(runner, list(zip(sequences, sizes, strict=True)))
        assert_equal(logits, _last_logits(family, *sequences))
