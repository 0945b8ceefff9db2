"""Conversations whose requests name no session, on an engine that keeps only their newest states."""

from __future__ import annotations

import pytest
from engine_support import (
    assert_greedy,
    layout_of,
    one_of_each_composition,
    random_prompt,
    serving,
)

from graftline.engine.layouts import STATE

STATEFUL = [
    family
    for family in one_of_each_composition()
    if any(plan.name == STATE for plan in layout_of(family).components)
]
THIN = "replay,end,answer,branch,marks,newest:1"


@pytest.mark.rule("C-13", "S-9", "X-1")
@pytest.mark.parametrize("family", STATEFUL)
def test_turns_go_on_from_the_one_state_that_stays(family: str) -> None:
    with serving(family, checkpoints=THIN) as client:
        page = client.engine.info.page_tokens
        prompt, kept = random_prompt(1, 21), 0
        for turn in range(4):
            outcome = client.ask(prompt, 6)
            assert_greedy(family, [prompt], [outcome], 6)
            assert outcome.reused == kept
            path = [*prompt, *outcome.tokens]
            kept = (len(path) - 1) // page * page  # the last token was not computed
            uses = {use.component: use for use in client.engine.cache.uses()}
            assert uses[STATE].held == 1
            assert client.engine.stats().sessions == min(turn, 1)
            prompt = [*path, *random_prompt(2 + turn, 9)]
        client.assert_idle_and_whole()


@pytest.mark.rule("C-13", "S-9")
def test_conversations_beside_each_other_keep_a_state_each() -> None:
    with serving("qwen3_5", checkpoints=THIN) as client:
        prompts = [random_prompt(seed, 18 + seed) for seed in range(4)]
        for turn in range(3):
            outcomes = client.ask_all(prompts, 5)
            for prompt, outcome in zip(prompts, outcomes, strict=True):
                assert (outcome.reused > 0) == (turn > 0)
                assert_greedy("qwen3_5", [prompt], [outcome], 5)
            prompts = [
                [*prompt, *outcome.tokens, *random_prompt(10 * turn + place, 7)]
                for place, (prompt, outcome) in enumerate(zip(prompts, outcomes, strict=True))
            ]
        assert client.engine.stats().sessions == len(prompts)
        uses = {use.component: use for use in client.engine.cache.uses()}
        assert uses[STATE].held == len(prompts)
        client.assert_idle_and_whole()


def test_sessions_are_not_inferred_where_that_is_turned_off() -> None:
    with serving("qwen3_5", checkpoints=THIN, infer_sessions=False) as client:
        prompt = random_prompt(1, 21)
        first = client.ask(prompt, 6)
        assert client.ask([*prompt, *first.tokens, *random_prompt(2, 9)], 6).reused > 0
        assert client.engine.stats().sessions == 0
        assert {use.component: use for use in client.engine.cache.uses()}[STATE].held > 2
