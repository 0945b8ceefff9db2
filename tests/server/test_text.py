"""Text out of tokens: no character is lost or changed, wherever tokens and stop texts are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.server.detokenize import BROKEN, Detokenizer, StopTexts
from graftline.zoo.tokenizer import build_tokenizer


def decode_bytes(tokens: list[int]) -> str:
    """A tokenizer of single bytes."""
    return bytes(tokens).decode(errors="replace")


def decode_bytes_apart(tokens: list[int]) -> str:
    """A tokenizer of single bytes that writes each broken byte as U+FFFD, as byte fallback does."""
    text, rest = "", bytes(tokens)
    while rest:
        for length in range(1, 5):
            try:
                text += rest[:length].decode()
            except UnicodeDecodeError:
                continue
            rest = rest[length:]
            break
        else:
            text, rest = text + BROKEN, rest[1:]
    return text


def pieces(detokenizer: Detokenizer, tokens: list[int]) -> list[str]:
    return [*(detokenizer.push(token) for token in tokens), detokenizer.flush()]


@given(st.text())
def test_whole_characters_come_back(text: str) -> None:
    tokens = list(text.encode())
    for decode in (decode_bytes, decode_bytes_apart):
        made = pieces(Detokenizer(decode), tokens)
        assert "".join(made) == text


@given(st.text(alphabet=st.characters(exclude_characters=BROKEN), min_size=1))
def test_nothing_broken_is_given_out_on_the_way(text: str) -> None:
    assert not any(BROKEN in piece for piece in pieces(Detokenizer(decode_bytes), list(text.encode())))


@given(st.lists(st.integers(0, 255)))
def test_broken_bytes_are_not_held_back_for_long(tokens: list[int]) -> None:
    detokenizer = Detokenizer(decode_bytes)
    for i, token in enumerate(tokens):
        before = len(detokenizer.push(token))
        del before
        assert len(detokenizer._pending) <= 6, i


@given(st.lists(st.integers(0, 255)))
def test_broken_bytes_end_as_the_whole_decodes(tokens: list[int]) -> None:
    assert "".join(pieces(Detokenizer(decode_bytes), tokens)) == decode_bytes(tokens)


@given(st.lists(st.integers(8, 511), max_size=40))
def test_the_zoo_tokenizer_streams_what_it_decodes(tokens: list[int]) -> None:
    fast = build_tokenizer(512).backend_tokenizer
    made = pieces(Detokenizer(lambda ids: fast.decode(list(ids), skip_special_tokens=True)), tokens)
    assert "".join(made) == fast.decode(tokens, skip_special_tokens=True)


def cut_at(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The reference: the earliest end of a stop text decides, since a stream can't look ahead."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


SHORT = st.text(alphabet="ab", min_size=1, max_size=4)


@given(st.lists(st.text(alphabet="ab", max_size=1), max_size=14), st.lists(SHORT, min_size=1, max_size=3))
def test_stop_texts_are_found_across_borders(parts: list[str], stops: list[str]) -> None:
    finder = StopTexts(tuple(stops))
    shown = "".join(finder.push(part) for part in parts)
    if not finder.found:
        shown += finder.flush()
    assert (shown, finder.found) == cut_at("".join(parts), tuple(stops))


@given(st.lists(st.text(alphabet="abc", max_size=3), max_size=10), SHORT)
def test_what_was_shown_never_begins_a_stop_text(parts: list[str], stop: str) -> None:
    finder = StopTexts((stop,))
    shown = seen = ""
    for part in parts:
        shown += finder.push(part)
        assert stop not in shown
        seen += part
        if not finder.found:
            assert not any(stop.startswith(seen[i:]) for i in range(len(shown)))


@pytest.mark.parametrize("push", [["ab", "c"], ["abc"], ["a", "b", "c"]])
def test_without_stop_texts_nothing_is_held(push: list[str]) -> None:
    finder = StopTexts(())
    assert [finder.push(text) for text in push] == push
    assert finder.flush() == ""
