"""A thin chat client in the terminal."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx2

from graftline.cli.chat import Wishes
from graftline.cli.output import note
from graftline.errors import GraftlineError


class ChatError(GraftlineError):
    """The server could not be reached, or it refused."""


class Client:
    """A connection to a server.

    Args:
        url: its address.
        api_key: empty for none.
    """

    def __init__(self, url: str, api_key: str = "") -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # No time limit while an answer is computed: the server sends comments, and Ctrl-C works.
        timeout = httpx2.Timeout(None, connect=10.0)
        self._http = httpx2.Client(base_url=url.rstrip("/"), headers=headers, timeout=timeout)
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def chunks(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Chunks of a streamed answer.

        Raises:
            ChatError: the server could not be reached, or it refused.
        """
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise ChatError(_error_text(response.text, response.status_code))
                for line in response.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        chunk = json.loads(line.removeprefix("data: "))
                        if "error" in chunk:
                            raise ChatError(_error_text(line.removeprefix("data: "), 200))
                        yield chunk
        except httpx2.HTTPError as error:
            raise ChatError(
                f"{self._url} does not answer: {error}", hint="is 'graftline serve' running there?"
            ) from error


def talk(client: Client, wishes: Wishes, prompt: str = "") -> int:
    """Asks one question, or all from standard input, and prints the answers."""
    opening = [{"role": "system", "content": wishes.system}] if wishes.system else []
    session_id = wishes.session_id or f"chat-{uuid.uuid4().hex[:12]}"
    messages = list(opening)
    for question in [prompt] if prompt else _questions():
        if question == "/new":
            messages = list(opening)
            note("(forgotten)")
            continue
        messages.append({"role": "user", "content": question})
        answer = _answer(client, _body(wishes, messages, session_id))
        messages.append({"role": "assistant", "content": answer})
    return 0


def _body(wishes: Wishes, messages: list[dict[str, str]], session_id: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "session_id": session_id,
        "temperature": wishes.temperature,
    }
    if wishes.model:
        body["model"] = wishes.model
    if wishes.max_tokens:
        body["max_completion_tokens"] = wishes.max_tokens
    return body


def _answer(client: Client, body: dict[str, Any]) -> str:
    """Prints an answer as it comes; Ctrl-C ends it, and the conversation goes on with what was said."""
    texts: list[str] = []
    last: dict[str, Any] = {}
    chunks = client.chunks(body)
    try:
        for chunk in chunks:
            last = chunk
            for choice in chunk["choices"]:
                texts.append(choice["delta"].get("content") or "")
                sys.stdout.write(texts[-1])
                sys.stdout.flush()
    except KeyboardInterrupt:
        chunks.close()  # type: ignore[attr-defined]
        note("\n(stopped)")
    sys.stdout.write("\n")
    sys.stdout.flush()
    if last.get("cache"):
        note(reuse_line(last))
    return "".join(texts)


def reuse_line(chunk: dict[str, Any]) -> str:
    """What the last chunk tells of reuse and speed, in one line."""
    cache, usage, times = chunk["cache"], chunk["usage"], chunk["timings"]
    lost = (
        f", lost {cache['lost_tokens']} to {cache['limited_by']} ({cache['reason']})"
        if cache["lost_tokens"]
        else ""
    )
    lost += "".join(
        f", {short['tier']} not brought up ({short['reason']})" for short in cache.get("shortfalls", ())
    )
    return (
        f"[prompt {usage['prompt_tokens']} tokens, reused {cache['reused_tokens']}"
        f"{lost};"
        f" first token after {times['prompt_ms']:.0f} ms, {usage['completion_tokens']} tokens,"
        f" {times['predicted_per_second']:.1f} a second]"
    )


def _questions() -> Iterator[str]:
    """Lines of standard input until it ends or says /exit."""
    terminal = sys.stdin.isatty()
    while True:
        if terminal:
            note("> ", end="")
        line = sys.stdin.readline()
        if not line or line.strip() == "/exit":
            return
        if line.strip():
            yield line.rstrip("\n")


def _error_text(body: str, status: int) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {status}"
