"""Ends of answers: stop texts, stop tokens, end of text."""

from __future__ import annotations

from queue import Queue
from typing import Any

import pytest
from server_support import PATIENCE_S, Live, events, pools_are_whole, until

from graftline.engine.api import GenerationRequest, SamplingParams, TokenEvent
from graftline.key import as_tokens

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
    """Of 24 x 120 tokens out of 512 some should be the end; with this seed some are."""
    body = {"prompt": PROMPT, "max_tokens": 120, "temperature": 1.5, "seed": 1, "n": 24}
    free = live.post("/v1/completions", body).json()
    ended = [choice for choice in free["choices"] if choice["finish_reason"] == "stop"]
    assert ended
    assert free["usage"]["completion_tokens"] < 24 * 120
    held = live.post("/v1/completions", {**body, "ignore_eos": True}).json()
    assert held["usage"]["completion_tokens"] == 24 * 120
    for choice in ended:
        assert held["choices"][choice["index"]]["text"].startswith(choice["text"].rstrip("\ufffd"))


def test_what_was_said_before_a_stop_text_can_be_reused(live: Live) -> None:
    """A client that goes on from a stop text finds its own turn in the cache."""
    engine, tokenizer = live.state.backend().engine, live.state.backend().tokenizer
    prompt = live.post("/tokenize", {"prompt": PROMPT * 3}).json()["tokens"]
    told: Queue[TokenEvent] = Queue()
    sampling = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    engine.submit(GenerationRequest(as_tokens(prompt), sampling, salt="other"), told.put)
    said: list[int] = []
    while (event := told.get(timeout=PATIENCE_S)).token is not None:
        said.append(event.token)
        if event.finish_reason:
            break
    text = tokenizer.decode(said)
    stop = next(text[i : i + 3] for i in range(len(text) // 2, len(text)) if "\ufffd" not in text[i : i + 3])
    stopped = complete(live, prompt=prompt, max_tokens=60, stop=stop, cache_salt="stopped")
    assert stopped["finish_reason"] == "stop"
    seen = next(i for i in range(60) if stop in tokenizer.decode(said[: i + 1]))
    whole = (len(prompt) + seen) // 16 * 16
    assert whole > len(prompt)
    body = {"prompt": [*prompt, *said], "max_tokens": 1, "cache_salt": "stopped"}
    until(lambda: pools_are_whole(live), "pools whole")
    assert live.post("/v1/completions", body).json()["cache"]["reused_tokens"] >= whole
