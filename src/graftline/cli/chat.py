"""`graftline chat`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

EXAMPLES = """Examples:

  graftline chat
  graftline chat "What is a radix tree?" --max-tokens 100
  graftline chat --url http://127.0.0.1:8001 --session-id me < questions.txt

/exit ends, /new forgets the conversation, Ctrl-C stops an answer."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What every question is sent with."""

    model: str = ""
    """Served name, if the server has several."""
    system: str = ""
    """System message."""
    session_id: str = ""
    """Who is chatting; a new one if left out."""
    max_tokens: int = 0
    """Most tokens of an answer; 0 leaves it to the server."""
    temperature: float = 1.0
    """0 always takes the likeliest token."""


NO_WISHES = Wishes()


def chat(
    prompt: str = "",
    *,
    url: str = "http://127.0.0.1:8000",
    api_key: str = "",
    wishes: Annotated[Wishes, Parameter(name="*")] = NO_WISHES,
) -> int:
    """Chats with a running server; says after each answer how much of the prompt was reused.

    Args:
        prompt: One question; without it they are read from standard input, one a line.
        url: Address of the server.
        api_key: Key, if the server wants one.
    """
    from graftline.cli.talk import Client, talk  # noqa: PLC0415  needs an HTTP client; other commands don't

    with Client(url, api_key) as client:
        return talk(client, wishes, prompt)
