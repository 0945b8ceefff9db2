"""The model's tokenizer: text, chats and token ids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, TypeVarTuple

import jinja2
import numpy as np
from transformers import AutoTokenizer

from graftline.key import Tokens
from graftline.server.detokenize import BROKEN, Detokenizer
from graftline.server.errors import bad_request

RESERVED = frozenset(
    (
        *("conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "sanitize_control_tokens", "padding", "truncation"),
        *("max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
    )
)
"""Names that `apply_chat_template` keeps for itself; a request must not set them as template variables."""

NAMED_TOKENS = 1 << 16
"""Texts of single tokens that are remembered: log-probabilities name some twenty with each token."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Chat:
    """What a chat template is given.

    Attributes:
        messages: as dictionaries.
        tools: as dictionaries.
        variables: more variables of the template.
        generate: whether the assistant's turn is opened.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    generate: bool = True


@dataclass(frozen=True, slots=True)
class Rendered:
    """A chat as tokens.

    Attributes:
        tokens: u32.
        marks: where other chats will leave this one: after the leading system messages.
        text: what was tokenized.
    """

    tokens: Tokens
    marks: tuple[int, ...]
    text: str


class Tokenizer:
    """A tokenizer of the transformers library. Encoding runs on a thread of its own, one text after another.

    Args:
        inner: the library's tokenizer; owned from now on.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._fast = getattr(inner, "backend_tokenizer", None)
        if self._fast is not None:
            # Settings of the checkpoint for training; they would silently cut prompts.
            self._fast.no_truncation()
            self._fast.no_padding()
        self._texts = lru_cache(NAMED_TOKENS)(self._token_text)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="graftline-tokenizer")

    @classmethod
    def load(cls, path_or_name: str) -> Tokenizer:
        """From a local folder or by hub name.

        Raises:
            OSError, ValueError: no tokenizer there.
        """
        return cls(AutoTokenizer.from_pretrained(path_or_name))

    @property
    def has_template(self) -> bool:
        """Whether the checkpoint says how a chat is written."""
        return bool(self._inner.chat_template)

    async def encode(self, text: str, *, special: bool = True) -> Tokens:
        """Tokens of a text, with the special tokens that the model puts around one if `special`."""
        return await self._on_thread(self._encode, text, special)

    async def render(self, chat: Chat) -> Rendered:
        """Tokens of a chat.

        Raises:
            ApiError: there is no template, or it refuses this chat.
        """
        if not self.has_template:
            raise bad_request(
                "this model's tokenizer has no chat template; use /v1/completions",
                "messages",
                "no_chat_template",
            )
        if taken := RESERVED & chat.variables.keys():
            raise bad_request(
                f"chat_template_kwargs: '{min(taken)}' cannot be set there", "chat_template_kwargs"
            )
        return await self._on_thread(self._render, chat)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without special ones."""
        if self._fast is not None:
            return str(self._fast.decode(list(tokens), skip_special_tokens=True))
        return str(self._inner.decode(list(tokens), skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """One token as it reads on its own, special ones by name."""
        return self._texts(token)

    def token_bytes(self, token: int) -> list[int] | None:
        """UTF-8 of a token; None when it is no whole text."""
        text = self.token_text(token)
        return None if BROKEN in text else list(text.encode())

    def detokenizer(self) -> Detokenizer:
        """A new one, for one row of tokens."""
        return Detokenizer(self.decode)

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _token_text(self, token: int) -> str:
        return str(self._inner.decode([token], skip_special_tokens=False))

    async def _on_thread(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _encode(self, text: str, special: bool) -> Tokens:
        if self._fast is not None:
            ids = self._fast.encode(text, add_special_tokens=special).ids
        else:
            ids = self._inner.encode(text, add_special_tokens=special)
        return np.asarray(ids, dtype=np.uint32)

    def _render(self, chat: Chat) -> Rendered:
        text = self._template(chat)
        tokens = self._encode(text, False)
        return Rendered(tokens, self._marks(chat, text, tokens), text)

    def _template(self, chat: Chat) -> str:
        try:
            text = self._inner.apply_chat_template(
                list(chat.messages),
                tools=list(chat.tools) or None,
                add_generation_prompt=chat.generate,
                tokenize=False,
                **chat.variables,
            )
        except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
            raise bad_request(
                f"the chat template refused this chat: {error}", "messages", "template_error"
            ) from error
        return str(text)

    def _marks(self, chat: Chat, text: str, tokens: Tokens) -> tuple[int, ...]:
        system = [message for message in chat.messages if message["role"] in ("system", "developer")]
        if not system or len(system) == len(chat.messages) or chat.messages[0] is not system[0]:
            return ()
        leading = next(i for i, message in enumerate(chat.messages) if message not in system)
        try:
            head = self._template(Chat(chat.messages[:leading], chat.tools, chat.variables, generate=False))
        except Exception:  # noqa: BLE001  a template may refuse a chat without a user; then there is no mark
            return ()
        if not text.startswith(head):
            return ()
        marked = self._encode(head, False)
        shared = len(marked) <= len(tokens) and np.array_equal(marked, tokens[: len(marked)])
        return (len(marked),) if shared and len(marked) else ()


def parse_arguments(arguments: str, param: str) -> Any:
    """A tool call's arguments, which templates want as an object and the API sends as text.

    Raises:
        ApiError: they are no JSON.
    """
    try:
        return json.loads(arguments)
    except ValueError as error:
        raise bad_request(f"{param}: not JSON: {error}", param) from error
