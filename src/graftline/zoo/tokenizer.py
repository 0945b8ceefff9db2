"""A byte-level tokenizer with a chat template, trained on text that ships with the package.

Layout of the vocabulary: 8 special tokens, the 256 bytes, merges learned from `corpus.txt`, and then, where
the corpus has no more to give, pairs of printable characters in a fixed order, so that every token id below
`vocab_size` decodes to something and a model's output never disappears.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from importlib import resources
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from graftline.errors import ConfigError

PAD, BOS, EOS, END = "<pad>", "<bos>", "<eos>", "<|end|>"
SPECIAL_TOKENS = (PAD, BOS, EOS, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", END)
SMALLEST_VOCAB = len(SPECIAL_TOKENS) + 256

CHAT_TEMPLATE = """\
{%- macro text(content) -%}
{%- if content is string -%}{{- content -}}
{%- elif content is iterable -%}
{%- for part in content -%}
{%- if part.type != 'text' -%}
{{- raise_exception('content part of type ' ~ part.type ~ ': only text is known') -}}
{%- endif -%}
{{- part.text -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- if tools -%}{{- '<|system|>' ~ (tools | tojson) ~ '<|end|>' -}}{%- endif -%}
{%- for message in messages -%}
{%- set role = 'system' if message.role == 'developer' else message.role -%}
{%- if role not in ('system', 'user', 'assistant', 'tool') -%}
{{- raise_exception('role ' ~ role ~ ': known roles are system, user, assistant and tool') -}}
{%- endif -%}
{{- '<|' ~ role ~ '|>' ~ text(message.content) -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- set arguments = function.arguments if function.arguments is string else function.arguments | tojson -%}
{{- '{"name": ' ~ (function.name | tojson) ~ ', "arguments": ' ~ arguments ~ '}' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""
"""Append-only: a conversation is rendered as a prefix of the same conversation with one more message, and the
prompt for an answer as a prefix of the conversation that holds the answer."""


def build_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of exactly `vocab_size` tokens; the same size always gives the same tokenizer.

    Encoding adds no special tokens of its own (the chat template does), and decoding gives back the text byte
    for byte.

    Raises:
        ConfigError: fewer tokens than the bytes and special tokens need.
    """
    if vocab_size < SMALLEST_VOCAB:
        raise ConfigError(
            f"a vocabulary of {vocab_size} tokens is too small",
            hint=f"take at least {SMALLEST_VOCAB}: 256 bytes and {len(SPECIAL_TOKENS)} special tokens",
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_tokenizer_json(vocab_size)),
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        # Never produced, as every byte has a token. A few families' own tokenizer classes, which the library
        # puts in place of this one, would otherwise add an unknown token beyond the vocabulary.
        unk_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@functools.lru_cache(maxsize=4)
def _tokenizer_json(vocab_size: int) -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = resources.files("graftline.zoo").joinpath("corpus.txt").read_text(encoding="utf-8")
    tokenizer.train_from_iterator(corpus.splitlines(keepends=True), trainer)
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    _fill(state["model"], vocab_size)
    return json.dumps(state)


def _fill(model: dict[str, Any], vocab_size: int) -> None:
    vocab: dict[str, int] = model["vocab"]
    pairs = _more_pairs()
    while len(vocab) < vocab_size:
        left, right = next(pairs)
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            model["merges"].append([left, right])


def _more_pairs() -> Iterator[tuple[str, str]]:
    """Pairs of printable ASCII characters, then such a pair with a third character, and so on."""
    characters = [chr(code) for code in range(33, 127)]
    left = characters
    while True:
        pairs = list(itertools.product(left, characters))
        yield from pairs
        left = [first + second for first, second in pairs]
