"""The real `openai` client against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from server_support import SYSTEM, Live, chat_body, events

from graftline.server.schemas import MAX_LOGPROBS


def chat_usage(live: Live, *, stream: bool) -> Any:
    body = chat_body(cache_salt=f"usage-{stream}")
    salt = {"cache_salt": body.pop("cache_salt")}
    chat = live.client().chat.completions
    if not stream:
        answer = chat.create(**body, extra_body=salt)
        return answer.choices[0].message.content, answer.choices[0].finish_reason, answer.usage
    chunks = list(chat.create(**body, stream=True, stream_options={"include_usage": True}, extra_body=salt))
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return text, chunks[-2].choices[0].finish_reason, chunks[-1].usage


def completion_usage(live: Live, prompt: list[int], *, stream: bool) -> Any:
    body: dict[str, Any] = {"model": "tiny", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    salt = {"cache_salt": f"usage-completion-{stream}"}
    completions = live.client().completions
    if not stream:
        answer = completions.create(**body, extra_body=salt)
        return answer.choices[0].text, answer.choices[0].finish_reason, answer.usage
    chunks = list(
        completions.create(**body, stream=True, stream_options={"include_usage": True}, extra_body=salt)
    )
    text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
    return text, chunks[-2].choices[0].finish_reason, chunks[-1].usage


def test_text_and_usage_are_equal_in_all_four_modes(live: Live) -> None:
    messages = chat_body()["messages"]
    prompt = live.post("/tokenize", {"messages": messages}).json()["tokens"]
    answers = [
        chat_usage(live, stream=False),
        chat_usage(live, stream=True),
        completion_usage(live, prompt, stream=False),
        completion_usage(live, prompt, stream=True),
    ]
    text, finish, usage = answers[0]
    assert finish == "length"
    assert usage.prompt_tokens == len(prompt)
    assert usage.completion_tokens == 8
    assert usage.total_tokens == len(prompt) + 8
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert all(answer == (text, finish, usage) for answer in answers)


def test_a_repeat_tells_what_it_reused(live: Live) -> None:
    body = chat_body("Say it again.", cache_salt="repeat", session_id="s-1")
    first, second = (live.post("/v1/chat/completions", body).json() for _ in range(2))
    tokens = first["usage"]["prompt_tokens"]
    assert first["cache"] == {
        "matched_tokens": 0,
        "reused_tokens": 0,
        "lost_tokens": 0,
        "limited_by": "",
        "reason": "",
        "boundaries": {"full": 0, "swa": 0, "state": 0},
        "coalesced_tokens": 0,
        "restored_ms": 0.0,
        "shortfalls": [],
        "session_id": "s-1",
    }
    reused = (tokens - 1) // 16 * 16
    assert second["cache"]["reused_tokens"] == reused
    assert second["usage"]["prompt_tokens_details"] == {
        "cached_tokens": reused,
        "cached_tokens_by_tier": {"device": reused, "host": 0, "store": 0},
    }
    assert (second["timings"]["cache_n"], second["timings"]["prompt_n"]) == (reused, tokens - reused)
    assert second["usage"]["prompt_tokens"] == tokens
    assert second["choices"] == first["choices"]


def test_another_question_under_the_same_system_message_reuses_it_at_once(live: Live) -> None:
    first = live.post("/v1/chat/completions", chat_body("One?", cache_salt="system")).json()
    assert first["cache"]["matched_tokens"] == 0
    other = live.post("/v1/chat/completions", chat_body("Another?", cache_salt="system")).json()
    head = live.post(
        "/tokenize",
        {"messages": [{"role": "system", "content": SYSTEM}], "add_generation_prompt": False},
    ).json()
    assert other["cache"]["reused_tokens"] == head["count"] // 16 * 16 > 0


@pytest.mark.parametrize("continuous", [False, True])
def test_chunks_have_the_shape_that_clients_expect(live: Live, continuous: bool) -> None:
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    body = chat_body(stream=True, stream_options=options, n=2)
    chunks = events(live.post("/v1/chat/completions", body).text)
    *contents, last = chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 16
    assert {"cache", "timings"} <= last.keys()
    assert len({chunk["id"] for chunk in chunks}) == 1
    for index in (0, 1):
        own = [chunk["choices"][0] for chunk in contents if chunk["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert all("role" not in choice["delta"] for choice in own[1:])
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
    assert all(("cache" not in chunk and "timings" not in chunk) for chunk in contents)
    if continuous:
        counts = [chunk["usage"]["completion_tokens"] for chunk in contents]
        assert counts == sorted(counts)
        assert counts[0] >= 1
    else:
        assert all(chunk["usage"] is None for chunk in contents)


def test_without_usage_the_last_chunk_has_the_reports(live: Live) -> None:
    chunks = events(live.post("/v1/chat/completions", chat_body(stream=True)).text)
    assert all("usage" not in chunk for chunk in chunks)
    assert [chunk for chunk in chunks if "cache" in chunk or "timings" in chunk] == [chunks[-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["cache"]["reused_tokens"] >= 0


def test_the_async_client_runs_many_at_once(live: Live) -> None:
    alone = [
        live.client().completions.create(model="tiny", prompt=f"Number {i}:", max_tokens=12, temperature=0)
        for i in range(6)
    ]

    async def all_at_once() -> list[str]:
        client = openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)

        async def one(i: int) -> str:
            stream = await client.completions.create(
                model="tiny", prompt=f"Number {i}:", max_tokens=12, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        async with client:
            return list(await asyncio.gather(*(one(i) for i in range(6))))

    assert asyncio.run(all_at_once()) == [answer.choices[0].text for answer in alone]


def test_choices_use_following_seeds(live: Live) -> None:
    def texts(seed: int, n: int) -> list[str]:
        answer = live.client().completions.create(
            model="tiny", prompt="Once upon a time", max_tokens=12, temperature=1.0, seed=seed, n=n
        )
        assert [choice.index for choice in answer.choices] == list(range(n))
        return [choice.text for choice in answer.choices]

    three = texts(7, 3)
    assert len(set(three)) == 3
    assert [texts(7 + i, 1)[0] for i in range(3)] == three


def test_several_choices_compute_their_prompt_once(live: Live) -> None:
    before = live.stats()
    body = chat_body("Tell me three things.", n=3, cache_salt="n", temperature=1.0)
    answer = live.post("/v1/chat/completions", body).json()
    after = live.stats()
    tokens = answer["usage"]["prompt_tokens"]
    reusable = (tokens - 1) // 16 * 16
    assert answer["usage"]["completion_tokens"] == 24
    assert answer["cache"]["reused_tokens"] == 0
    assert after["computed_tokens"] - before["computed_tokens"] == tokens + 2 * (tokens - reusable)


def test_a_list_of_prompts_is_answered_in_order(live: Live) -> None:
    completions = live.client().completions
    texts = ["alpha beta", "gamma", "delta epsilon zeta"]
    apart = [
        completions.create(model="tiny", prompt=text, max_tokens=6, temperature=0, n=2) for text in texts
    ]
    together = completions.create(model="tiny", prompt=texts, max_tokens=6, temperature=0, n=2)
    assert [c.text for c in together.choices] == [c.text for answer in apart for c in answer.choices]
    assert together.usage is not None
    assert together.usage.prompt_tokens == sum(answer.usage.prompt_tokens for answer in apart if answer.usage)
    tokens = [live.post("/tokenize", {"prompt": text}).json()["tokens"] for text in texts]
    by_tokens = completions.create(model="tiny", prompt=tokens, max_tokens=6, temperature=0, n=2)
    assert [c.text for c in by_tokens.choices] == [c.text for c in together.choices]


def test_echo_puts_the_prompt_first(live: Live) -> None:
    completions = live.client().completions
    plain = completions.create(model="tiny", prompt="Echo me", max_tokens=4, temperature=0)
    echoed = completions.create(model="tiny", prompt="Echo me", max_tokens=4, temperature=0, echo=True)
    assert echoed.choices[0].text == "Echo me" + plain.choices[0].text
    stream = completions.create(
        model="tiny", prompt="Echo me", max_tokens=4, temperature=0, echo=True, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == echoed.choices[0].text


def test_log_probabilities_of_a_chat(live: Live) -> None:
    answer = live.client().chat.completions.create(**chat_body(), logprobs=True, top_logprobs=3)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 8
    for token in logprobs.content:
        assert token.logprob <= 0
        assert [top.logprob for top in token.top_logprobs] == sorted(
            (top.logprob for top in token.top_logprobs), reverse=True
        )
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token  # greedy takes the likeliest
        assert token.bytes is None or bytes(token.bytes).decode() == token.token
    stream = live.client().chat.completions.create(**chat_body(), logprobs=True, top_logprobs=3, stream=True)
    streamed = [
        token.token
        for chunk in stream
        for token in (chunk.choices[0].logprobs.content or [] if chunk.choices[0].logprobs else [])
    ]
    assert streamed == [token.token for token in logprobs.content]


def test_log_probabilities_of_a_completion(live: Live) -> None:
    answer = live.client().completions.create(
        model="tiny", prompt="Count", max_tokens=5, temperature=0, logprobs=MAX_LOGPROBS
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    lists = (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset)
    assert [len(one or ()) for one in lists] == [5] * 4


def test_max_completion_tokens_goes_before_max_tokens(live: Live) -> None:
    answer = live.client().chat.completions.create(**chat_body(), max_completion_tokens=3)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_defaults_of_max_tokens(live: Live) -> None:
    plain = live.post("/v1/completions", {"prompt": "x", "ignore_eos": True}).json()
    assert plain["usage"]["completion_tokens"] == 16
    limit = live.get("/v1/models/tiny").json()["max_model_len"]
    prompt = [5] * (limit - 3)
    short = live.post("/v1/completions", {"prompt": prompt, "ignore_eos": True, "use_cache": False}).json()
    assert short["usage"]["completion_tokens"] == 3


def test_models(live: Live) -> None:
    client = live.client()
    assert [model.id for model in client.models.list()] == ["tiny", "tiny-alias"]
    assert client.models.retrieve("tiny-alias").owned_by == "graftline"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("absent")
    assert caught.value.code == "model_not_found"


def test_tools_and_template_variables_reach_the_template(live: Live) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "How"}, {"type": "text", "text": "warm?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12 degrees"},
    ]

    def text(**more: Any) -> str:
        tokens = live.post("/tokenize", {"messages": messages, "return_token_strs": True, **more}).json()
        return "".join(tokens["token_strs"])

    plain = text()
    assert "How\nwarm?" in plain
    assert '"city": "Bern"' in plain
    assert plain.endswith("<|assistant|>")
    assert text(tools=[tool]).startswith(
        '<bos><|system|>[{"type": "function", "function": {"name": "weather"'
    )
    assert not text(add_generation_prompt=False).endswith("<|assistant|>")
    body = {"messages": messages, "tools": [tool], "max_tokens": 4, "temperature": 0}
    assert live.post("/v1/chat/completions", body).status_code == 200


def test_request_id_and_ignored_fields(live: Live) -> None:
    body = chat_body(metadata={"a": "b"}, parallel_tool_calls=True, **{"bad\nname": 1})
    response = live.post("/v1/chat/completions", body, headers={"X-Request-Id": "mine-1"})
    assert response.headers["X-Request-Id"] == "mine-1"
    assert response.headers["X-Ignored-Fields"] == "?, metadata, parallel_tool_calls"
    other = live.get("/health", headers={"X-Request-Id": "x" * 200})
    assert other.headers["X-Request-Id"].startswith("req-")


@pytest.mark.parametrize(
    ("body", "headers", "session"),
    [
        ({"session_id": "b", "prompt_cache_key": "k"}, {"X-Session-ID": "h"}, "b"),
        ({"prompt_cache_key": "k"}, {"X-Session-ID": "h"}, "h"),
        ({"prompt_cache_key": "k"}, {}, "k"),
        ({}, {}, None),
    ],
)
def test_where_the_session_comes_from(live: Live, body: Any, headers: Any, session: str | None) -> None:
    answer = live.post("/v1/chat/completions", chat_body(**body), headers=headers).json()
    assert answer["cache"]["session_id"] == session


def test_a_session_header_that_is_too_long(live: Live) -> None:
    response = live.post("/v1/chat/completions", chat_body(), headers={"X-Session-ID": "s" * 257})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "session_id")


def test_tokens_and_back(live: Live) -> None:
    text = "Grüße aus Bern \N{ROCKET} 東京\n"
    tokens = live.post("/tokenize", {"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"]) > 0
    assert live.post("/detokenize", {"tokens": tokens["tokens"]}).json() == {"prompt": text}
