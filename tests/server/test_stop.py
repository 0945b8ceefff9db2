"""Ends of answers: stop texts, stop tokens, end of text."""

from __future__ import annotations

from typing import Any

import pytest
from server_support import Live, events

PROMPT = "Tell me a long story about"


def complete(live: Live, **more: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "n": 1, **more}
    response = live.post("/v1/completions", body)
    if not body.get("stream"):
        answer: dict[str, Any] = response.json()
        return answer["choices"][0]
    chunks = events(response.text)
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    return {"text": text, "finish_reason": chunks[-1]["choices"][0]["finish_reason"]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("length", [1, 3])
def test_a_stop_text_ends_the_answer_before_it(live: Live, length: int, stream: bool) -> None:
    whole = complete(live)["text"]
    for start in range(1, len(whole) - length, 5):
        stop = whole[start : start + length]
        if "\ufffd" in stop:
            continue
        answer = complete(live, stop=[stop, "never in there"], stream=stream)
        assert answer["text"] == whole[: whole.index(stop)]
        assert answer["finish_reason"] == "stop"


def test_a_stop_text_that_begins_and_does_not_come_holds_nothing_back(live: Live) -> None:
    whole = complete(live)["text"]
    answer = complete(live, stop=whole[-2:] + "and more", stream=True)
    assert answer == {"text": whole, "finish_reason": "length"}


def test_a_stop_text_of_one_choice_leaves_the_others_alone(live: Live) -> None:
    body = {"prompt": PROMPT, "max_tokens": 16, "temperature": 1.0, "seed": 3, "n": 3, "ignore_eos": True}
    free = live.post("/v1/completions", body).json()["choices"]
    stop = next(
        text[i : i + 2]
        for text in [free[1]["text"]]
        for i in range(2, len(text) - 2)
        if text[i : i + 2] not in free[0]["text"] + free[2]["text"]
    )
    cut = live.post("/v1/completions", {**body, "stop": stop}).json()["choices"]
    assert [choice["finish_reason"] for choice in cut] == ["length", "stop", "length"]
    assert cut[1]["text"] == free[1]["text"][: free[1]["text"].index(stop)]
    assert [cut[i]["text"] for i in (0, 2)] == [free[i]["text"] for i in (0, 2)]


def test_a_stop_token_is_not_part_of_the_answer(live: Live) -> None:
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 0}
    tokens = live.post("/v1/completions", body).json()["choices"][0]["logprobs"]["tokens"]
    whole = next(i for i, token in enumerate(tokens) if i > 2 and "\ufffd" not in token)
    ids = live.post("/tokenize", {"prompt": tokens[whole], "add_special_tokens": False}).json()["tokens"]
    assert len(ids) == 1
    answer = complete(live, stop_token_ids=ids)
    assert answer["finish_reason"] == "stop"
    assert answer["text"] == "".join(tokens[: tokens.index(tokens[whole])])


def test_without_ignore_eos_the_models_own_end_is_taken(live: Live) -> None:
    eos = live.state.backend().engine.info.eos_token_ids
    bodies = [{"prompt": f"Story {i}", "max_tokens": 200, "seed": i, "temperature": 1.5} for i in range(12)]
    answers = [live.post("/v1/completions", body).json() for body in bodies]
    ended = [answer for answer in answers if answer["choices"][0]["finish_reason"] == "stop"]
    assert eos
    assert ended, "of 12 x 200 tokens out of 512 one should be the end"
    assert all(answer["usage"]["completion_tokens"] < 200 for answer in ended)
