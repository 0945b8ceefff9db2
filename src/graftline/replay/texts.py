"""Traces of text. No tokenizer is asked: four bytes of UTF-8 count as one token.

That keeps what matters for reuse: two texts have as many tokens in common as their common prefix has
whole groups of four bytes. Lengths are near those of common tokenizers for English text and code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from graftline.replay.lines import Line, moment_s
from graftline.replay.requests import NO_IDS, Ids, ReplayRequest

TOKEN_BYTES = 4


def openai_request(line: Line) -> ReplayRequest:
    """A request as sent to an OpenAI-compatible server.

    The request may be the line itself, or lie under `body` (batch files) or `request`; the answer under
    `response`. `prompt` may be a list of token ids.
    """
    body = line
    for name in ("request", "body"):
        if name in body.fields:
            body = body.within(body.fields[name])
    ident = f"line {line.number}"
    session = line.text("session_id") or body.text("session_id") or body.text("user") or ident
    prompt = body.fields.get("prompt")
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        ids, count, answer_ids = np.array(prompt, dtype=np.uint64), len(prompt), NO_IDS
    else:
        ids, count, answer_ids = split_text(prompt_text(body), answer_text(line))
    return ReplayRequest(
        ident=ident,
        session=session,
        turn=0,
        arrival_s=moment_s(line, "timestamp", "created", "time"),
        think_s=None,
        prompt_tokens=count,
        answer_tokens=len(answer_ids),
        unit_tokens=1,
        prompt_ids=ids,
        answer_ids=answer_ids,
    )


def prompt_text(body: Line) -> str:
    """The prompt as one text: tools, then messages, then the head of the answer."""
    prompt = body.fields.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if "messages" not in body.fields:
        raise body.fault("neither 'messages' nor a 'prompt' of text or token ids")
    tools = body.items("tools")
    head = f"<|tools|>\n{json.dumps(tools, ensure_ascii=False)}\n" if tools else ""
    return head + "".join(message_text(body, message) for message in body.items("messages")) + answer_head()


def answer_text(line: Line) -> str:
    """The answer's text, where the log has one; empty otherwise."""
    answer = line
    for name in ("response", "body"):
        if name in answer.fields:
            answer = answer.within(answer.fields[name])
    choices = answer.items("choices")
    if answer is line or not choices:
        return ""
    choice = line.within(choices[0])
    if "message" in choice.fields:
        return content_text(choice.within(choice.fields["message"])) + "\n"
    return choice.text("text")


def message_text(line: Line, message: Any) -> str:
    """One message, in a form of which no two different messages have the same."""
    item = line.within(message)
    if "raw" in item.fields:
        return item.text("raw")
    return f"<|{item.text('role', 'user')}|>\n{content_text(item)}\n"


def content_text(message: Line) -> str:
    """A message's text and tool calls."""
    content = message.fields.get("content") or ""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    calls = message.items("tool_calls") if message.fields.get("tool_calls") else []
    return text + (json.dumps(calls, ensure_ascii=False) if calls else "")


def answer_head() -> str:
    """What the server puts before an answer."""
    return "<|assistant|>\n"


def split_text(prompt: str, answer: str) -> tuple[Ids, int, Ids]:
    """Whole tokens of the prompt, the prompt's length in tokens, and the tokens that follow on them."""
    data = prompt.encode()
    whole = len(data) // TOKEN_BYTES
    ids = as_ids(data + answer.encode())
    answer_ids = ids[whole:] if answer else NO_IDS
    return ids[:whole], max(1, -(-len(data) // TOKEN_BYTES)), answer_ids


def as_ids(data: bytes) -> Ids:
    """Tokens of a text; a rest of less than four bytes is left out."""
    count = len(data) // TOKEN_BYTES
    return np.frombuffer(data, dtype="<u4", count=count).astype(np.uint64)


def session_requests(line: Line) -> Iterator[ReplayRequest]:
    """Requests of one conversation: prompts are ranges of its pool of messages."""
    session = line.text("session_id", f"line {line.number}")
    start_s = line.seconds("t0_ms", unit_s=1e-3) or 0.0
    pool = line.items("messages")
    texts = [message_text(line, message) for message in pool]
    raw = any("raw" in line.within(message).fields for message in pool)
    for number, fields in enumerate(line.items("requests")):
        item = line.within(fields)
        prompt = "".join(text for low, high in ranges(item, len(texts)) for text in texts[low:high])
        head = "" if raw else answer_head()
        out = item.fields.get("out")
        answer = ""
        if out is not None:
            place = item.count("out")
            if place >= len(texts):
                raise item.fault(f"'out' is {place}, the pool has {len(texts)} messages")
            answer = texts[place].removeprefix(head)
        ids, count, answer_ids = split_text(prompt + head, answer)
        yield ReplayRequest(
            ident=f"line {line.number}, request {number}",
            session=session,
            turn=0,
            arrival_s=start_s + (item.seconds("t_ms", unit_s=1e-3) or 0.0),
            think_s=item.seconds("think_ms", unit_s=1e-3, default=None),
            prompt_tokens=count,
            answer_tokens=len(answer_ids),
            unit_tokens=1,
            prompt_ids=ids,
            answer_ids=answer_ids,
        )


def ranges(item: Line, messages: int) -> list[tuple[int, int]]:
    """The prompt's ranges of messages."""
    found = []
    for pair in item.items("prompt"):
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(end) is int for end in pair)):
            raise item.fault(f"'prompt' has {pair!r}, not [from, to]")
        low, high = pair
        if not 0 <= low <= high <= messages:
            raise item.fault(f"range {pair} is outside the pool of {messages} messages")
        found.append((low, high))
    return found
