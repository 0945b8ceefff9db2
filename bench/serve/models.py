"""Models that the serving benchmarks use: the zoo's, with a tokenizer that hides nothing.

The client must know which tokens came and when. So token *i* reads as one character of its own: every
token gives text at once, and text gives the tokens back exactly.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from graftline.zoo import make_model, preset

FIRST = 0x4E00
"""Character of token 0: from here on 20,992 characters follow that are letters and combine with nothing."""

FAMILIES = ("qwen3", "gemma3", "qwen3_5", "inkling")
"""Full attention; with sliding windows; with gated delta states; with windows and states."""


def bench_model(family: str, size: str, out: Path) -> Path:
    """Makes a model in `out` anew and returns its folder.

    Args:
        family: a name of the zoo.
        size: a preset of the zoo.
        out: folder for all models.
    """
    path = out / f"{size}-{family}"
    make_model(family, path, preset=size, overwrite=True)
    one_character_tokenizer(vocab_size(size)).save_pretrained(path)
    return path


def vocab_size(size: str) -> int:
    """Token ids of a preset's models are below it."""
    return preset(size).vocab_size


def one_character_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """Token `i` is the character `FIRST + i`."""
    vocab = {chr(FIRST + token): token for token in range(vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=chr(FIRST)))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def random_tokens(rng: np.random.Generator, count: int, size: str) -> list[int]:
    """Tokens drawn evenly from a preset's vocabulary."""
    return [int(token) for token in rng.integers(0, vocab_size(size), count)]


def tokens_of(text: str) -> list[int]:
    """Tokens of a text that the model generated."""
    return [ord(character) - FIRST for character in text]
