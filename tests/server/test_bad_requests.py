"""What is refused, and how the refusal names it."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from server_support import Live, chat_body

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "x"}]


def completion(**more: Any) -> dict[str, Any]:
    return {"prompt": "x", "max_tokens": 2, **more}


BAD = [
    # path, body, status, code, param
    (CHAT, {}, 400, "missing", "messages"),
    (CHAT, {"messages": []}, 400, "too_short", "messages"),
    (CHAT, {"messages": "hello"}, 400, "list_type", "messages"),
    (CHAT, {"messages": [{"role": "king", "content": "x"}]}, 400, "literal_error", "messages[0].role"),
    (CHAT, {"messages": [{"content": "x"}]}, 400, "missing", "messages[0].role"),
    (CHAT, {"messages": [{"role": "function", "content": "x"}]}, 400, "template_error", "messages"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
        400,
        None,
        "messages[0].content[0].type",
    ),
    (
        CHAT,
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
                *USER,
            ]
        },
        400,
        None,
        "messages[0].tool_calls[0].function.arguments",
    ),
    (CHAT, chat_body(model="other"), 404, "model_not_found", "model"),
    (CHAT, chat_body(temperature=-1), 400, "greater_than_equal", "temperature"),
    (CHAT, chat_body(temperature="hot"), 400, "float_type", "temperature"),
    (CHAT, chat_body(temperature=True), 400, "float_type", "temperature"),
    (CHAT, chat_body(top_p=0), 400, "greater_than", "top_p"),
    (CHAT, chat_body(top_p=1.5), 400, "less_than_equal", "top_p"),
    (CHAT, chat_body(min_p=2), 400, "less_than_equal", "min_p"),
    (CHAT, chat_body(top_k=-2), 400, "greater_than_equal", "top_k"),
    (CHAT, chat_body(max_tokens=0), 400, "greater_than_equal", "max_tokens"),
    (CHAT, chat_body(max_tokens=2.5), 400, "int_type", "max_tokens"),
    (CHAT, chat_body(n=0), 400, "greater_than_equal", "n"),
    (CHAT, chat_body(n=1000), 400, "less_than_equal", "n"),
    (CHAT, chat_body(seed=2**64), 400, "less_than_equal", "seed"),
    (CHAT, chat_body(stop=["x"] * 17), 400, None, "stop"),
    (CHAT, chat_body(stop=""), 400, None, "stop"),
    (CHAT, chat_body(stop_token_ids=[10**6]), 400, None, "stop_token_ids"),
    (CHAT, chat_body(top_logprobs=3), 400, None, "top_logprobs"),
    (CHAT, chat_body(logprobs=True, top_logprobs=21), 400, "less_than_equal", "top_logprobs"),
    (CHAT, chat_body(max_tokens=10**6), 400, "context_length_exceeded", "max_tokens"),
    (CHAT, chat_body("word " * 5000), 400, "context_length_exceeded", "messages"),
    (
        CHAT,
        chat_body(response_format={"type": "json_object"}),
        400,
        "unsupported_parameter",
        "response_format",
    ),
    (CHAT, chat_body(logit_bias={"5": 1}), 400, "unsupported_parameter", "logit_bias"),
    (CHAT, chat_body(presence_penalty=0.5), 400, "unsupported_parameter", "presence_penalty"),
    (CHAT, chat_body(frequency_penalty=-0.5), 400, "unsupported_parameter", "frequency_penalty"),
    (CHAT, chat_body(repetition_penalty=1.1), 400, "unsupported_parameter", "repetition_penalty"),
    (CHAT, chat_body(modalities=["text", "audio"]), 400, "unsupported_parameter", "modalities"),
    (CHAT, chat_body(audio={"voice": "x"}), 400, "unsupported_parameter", "audio"),
    (CHAT, chat_body(functions=[{"name": "f"}]), 400, "unsupported_parameter", "functions"),
    (CHAT, chat_body(tool_choice="required"), 400, "literal_error", "tool_choice"),
    (CHAT, chat_body(chat_template_kwargs={"tokenize": True}), 400, None, "chat_template_kwargs"),
    (CHAT, chat_body(stream_options={"include_usage": 1}), 400, "bool_type", "stream_options.include_usage"),
    (COMPLETIONS, {}, 400, "missing", "prompt"),
    (COMPLETIONS, completion(prompt=""), 400, "empty_prompt", "prompt"),
    (COMPLETIONS, completion(prompt=[]), 400, "empty_prompt", "prompt"),
    (COMPLETIONS, completion(prompt=["x", ""]), 400, "empty_prompt", "prompt[1]"),
    (COMPLETIONS, completion(prompt=[[1], []]), 400, "empty_prompt", "prompt[1]"),
    (COMPLETIONS, completion(prompt=[10**6]), 400, None, "prompt"),
    (COMPLETIONS, completion(prompt=[[1], [10**6]]), 400, None, "prompt[1]"),
    (COMPLETIONS, completion(prompt=[-1]), 400, None, "prompt[0]"),
    (COMPLETIONS, completion(prompt=["x", 1]), 400, None, "prompt[1]"),
    (COMPLETIONS, completion(prompt=["x"] * 200, n=2), 400, None, "n"),
    (COMPLETIONS, completion(prompt=["x"] * 300), 400, None, "prompt"),
    (COMPLETIONS, completion(prompt=[5] * 5000), 400, "context_length_exceeded", "prompt"),
    (COMPLETIONS, completion(best_of=3), 400, "unsupported_parameter", "best_of"),
    (COMPLETIONS, completion(suffix="end"), 400, "unsupported_parameter", "suffix"),
    (COMPLETIONS, completion(echo=True, logprobs=1), 400, None, "logprobs"),
    (COMPLETIONS, completion(logprobs=21), 400, "less_than_equal", "logprobs"),
    (COMPLETIONS, completion(session_id="s" * 300), 400, "string_too_long", "session_id"),
    (COMPLETIONS, completion(priority=2**40), 400, "less_than_equal", "priority"),
    (COMPLETIONS, [1], 400, "model_attributes_type", None),
    ("/tokenize", {}, 400, None, "prompt"),
    ("/tokenize", {"prompt": "x", "messages": USER}, 400, None, "prompt"),
    ("/detokenize", {"tokens": [10**6]}, 400, None, "tokens"),
    ("/detokenize", {"tokens": "x"}, 400, "list_type", "tokens"),
    ("/v1/absent", {}, 404, "path_not_found", None),
    ("/v1/models", {}, 405, "method_not_allowed", None),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "param"), BAD)
def test_refusals(live: Live, path: str, body: Any, status: int, code: str | None, param: str | None) -> None:
    response = live.post(path, body)
    error = response.json()["error"]
    assert response.status_code == status, error
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    if code is not None:
        assert error["code"] == code, error
    assert error["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    assert error["message"]
    assert response.headers["X-Request-Id"]


RAW = [
    (b"{", "application/json", 400, "invalid_json"),
    (b"", "application/json", 400, "missing"),
    (b"\xff\xfe", "application/json", 400, "invalid_json"),
    (b'{"prompt": NaN}', "application/json", 400, "invalid_json"),
    (b'{"prompt": "\\ud800"}', "application/json", 400, "invalid_json"),
    (b"[" * 100_000, "application/json", 400, "invalid_json"),
    (b'{"prompt": "x", "temperature": 1e999}', "application/json", 400, "finite_number"),
    (b'{"prompt": "x"}', "text/plain", 415, "unsupported_media_type"),
    (b'{"prompt": "x"}', None, 415, "unsupported_media_type"),
]


@pytest.mark.parametrize(("content", "kind", "status", "code"), RAW)
def test_bodies_that_are_no_json(
    live: Live, content: bytes, kind: str | None, status: int, code: str
) -> None:
    with live.http() as http:
        response = http.post(COMPLETIONS, content=content, headers={"Content-Type": kind} if kind else {})
    assert response.status_code == status, response.text
    assert response.json()["error"]["code"] == code, response.text


def test_the_message_names_the_numbers(live: Live) -> None:
    limit = live.get("/v1/models/tiny").json()["max_model_len"]
    with pytest.raises(openai.BadRequestError) as caught:
        live.client().completions.create(model="tiny", prompt=[5] * 10, max_tokens=limit)
    assert caught.value.code == "context_length_exceeded"
    assert all(str(number) in caught.value.message for number in (10, limit, limit + 10))


@pytest.mark.parametrize(
    "field",
    [
        {"response_format": {"type": "text"}},
        {"presence_penalty": 0.0, "frequency_penalty": 0},
        {"logit_bias": {}},
        {"best_of": 1},
        {"modalities": ["text"]},
        {"stop": None, "seed": None, "stream_options": None, "tools": None, "user": None},
        {"temperature": 1e-30},
        {"top_k": -1},
        {"top_k": 10**6},
        {"prompt_cache_retention": "24h"},
        {"priority": -5},
    ],
)
def test_harmless_values_are_taken(live: Live, field: dict[str, Any]) -> None:
    assert live.post(CHAT, chat_body(**field)).status_code == 200


def test_best_of_may_be_n(live: Live) -> None:
    assert live.post(COMPLETIONS, completion(best_of=2, n=2)).status_code == 200


def test_a_refused_prompt_of_several_leaves_nothing_running(live: Live) -> None:
    before = live.stats()["generated_tokens"]
    assert live.post(COMPLETIONS, completion(prompt=[[5, 6], [7], [10**6]])).status_code == 400
    assert live.stats()["generated_tokens"] == before
