"""Cut the arguments of a module out of a packed row, and put its results back together."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Section(Protocol):
    """Part of a packed row: `rows` sequences of `row_tokens` tokens each, from `first_token` on."""

    @property
    def first_token(self) -> int:
        """Place of the first token."""

    @property
    def rows(self) -> int:
        """Number of sequences."""

    @property
    def row_tokens(self) -> int:
        """Tokens of each sequence."""


def tokens_of(value: Any, section: Section, total_tokens: int) -> Any:
    """The section's part of `value`: tensors of shape (1, total_tokens, ...) become (rows, row_tokens, ...).

    Looks into tuples, lists and dicts; leaves everything else alone.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() < 2 or value.shape[0] != 1 or value.shape[1] != total_tokens:
            return value
        count = section.rows * section.row_tokens
        part = value[:, section.first_token : section.first_token + count]
        return part.reshape(section.rows, section.row_tokens, *value.shape[2:])
    if isinstance(value, dict):
        return {key: tokens_of(item, section, total_tokens) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(tokens_of(item, section, total_tokens) for item in value)
    return value


def joined(parts: list[tuple[Any, Any]]) -> Any:
    """Results of the sections, packed again; what is no tensor of one entry per token becomes None."""
    if isinstance(parts[0][1], tuple):
        columns = zip(*(out for _, out in parts), strict=True)
        return tuple(
            _joined_tensors([(section, item) for (section, _), item in zip(parts, column, strict=True)])
            for column in columns
        )
    return _joined_tensors(parts)


def _joined_tensors(parts: list[tuple[Any, Any]]) -> torch.Tensor | None:
    packed = []
    for section, item in parts:
        if not isinstance(item, torch.Tensor) or item.shape[:2] != (section.rows, section.row_tokens):
            return None
        packed.append(item.reshape(1, section.rows * section.row_tokens, *item.shape[2:]))
    return packed[0] if len(packed) == 1 else torch.cat(_widened(packed), dim=1)


def _widened(packed: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tokens that an indexer chose, (1, n, chosen): short sequences have fewer, their first is repeated."""
    widest = max(item.shape[-1] for item in packed)
    if all(item.shape[-1] == widest for item in packed) or packed[0].is_floating_point():
        return packed
    return [
        torch.cat([item, item[..., :1].expand(*item.shape[:-1], widest - item.shape[-1])], dim=-1)
        for item in packed
    ]
