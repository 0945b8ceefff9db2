"""From tokens to text, one at a time: characters that are split over tokens, and stop texts that are too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

BROKEN = "\ufffd"
SPLIT_TOKENS = 3
"""A character of UTF-8 has at most 4 bytes, so it is whole at the latest 3 tokens after its first one."""


class Detokenizer:
    """Text of a growing row of tokens; what was given out never changes.

    A token is decoded together with those of the last text given out, since how a token reads can depend on
    the one before it (a leading space, for example). Cost per token: decoding a few tokens.

    Args:
        decode: text of a row of tokens; incomplete characters as U+FFFD.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []

    def push(self, token: int) -> str:
        """Adds a token; the text that is now sure, which may be empty."""
        self._pending.append(token)
        text = self._tail(self._pending)
        if not text.endswith(BROKEN):
            return self._give(len(self._pending), text)
        sure = len(self._pending) - SPLIT_TOKENS
        if sure < 1:
            return ""
        # The bytes up to here can't become a character any more: they are no UTF-8 and stay broken.
        head = self._tail(self._pending[:sure])
        return self._give(sure, head) if text.startswith(head) else ""

    def flush(self) -> str:
        """What is left at the end, broken characters included."""
        return self._give(len(self._pending), self._tail(self._pending)) if self._pending else ""

    def _tail(self, tokens: Sequence[int]) -> str:
        return self._decode([*self._context, *tokens])[len(self._context_text) :]

    def _give(self, count: int, text: str) -> str:
        if text:
            self._context = self._pending[:count]
            self._context_text = self._decode(self._context)
            del self._pending[:count]
        return text


@dataclass(slots=True)
class StopTexts:
    """Finds the first of some texts in a stream of text, and holds back what may be the start of one.

    Attributes:
        stops: the texts; none of them empty.
        found: whether one was found; what comes after it is dropped.
    """

    stops: tuple[str, ...]
    found: bool = False
    _held: str = ""

    def push(self, text: str) -> str:
        """Adds text; what can be given out, without any stop text."""
        if self.found or not self.stops:
            return "" if self.found else text
        text = self._held + text
        places = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if places:
            self.found = True
            self._held = ""
            return text[: min(places)]
        keep = max(_overlap(text, stop) for stop in self.stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of a text with which a stop text begins, less than the whole of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
