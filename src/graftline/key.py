"""What identifies a cached prefix: token ids in whole pages, inside a namespace.

Inside the tree tokens are compared exactly and nothing is hashed. Where a prefix has to be named
outside of the tree (a store's key, an event), its pages are named by a SHA-256 chain: rule K-4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graftline.errors import ConfigError

Tokens: TypeAlias = npt.NDArray[np.uint32]
TokensLike: TypeAlias = Sequence[int] | npt.NDArray[Any]

KEY_FORMAT = b"graftline/key/1"
TOKEN_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Namespace:
    """What two prefixes of equal tokens must share before one may reuse the other's values.

    Rule K-3. The fields are typed and stay apart: no two different namespaces can be made equal by
    joining strings.

    Attributes:
        model: fingerprint of the model: weights, config, dtype.
        weight_epoch: grows with every change of the weights at run time.
        adapter: identity of a LoRA or other adapter; empty for none.
        salt: isolates tenants; empty for none.
    """

    model: str = ""
    weight_epoch: int = 0
    adapter: str = ""
    salt: str = ""

    def __post_init__(self) -> None:
        if type(self.weight_epoch) is not int:
            raise ConfigError(f"weight_epoch is {self.weight_epoch!r}, it must be an int")
        for name in ("model", "adapter", "salt"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, it must be a str")

    def seed(self) -> bytes:
        """Start of the hash chain: 32 bytes, every field framed by its name, type and length."""
        digest = hashlib.sha256(KEY_FORMAT)
        for field in fields(self):
            value = getattr(self, field.name)
            data = str(value).encode()
            digest.update(f"{field.name}:{type(value).__name__}:{len(data)}:".encode())
            digest.update(data)
        return digest.digest()


def as_tokens(tokens: TokensLike) -> Tokens:
    """Token ids as a contiguous u32 array, shape (n,); rule K-1.

    A contiguous u32 array comes back as it is (no copy); anything else is converted and checked.

    Raises:
        ConfigError: not one-dimensional, not integers, or an id outside 0 .. 2**32 - 1.
    """
    try:
        array = np.asarray(tokens)
    except ValueError as error:
        raise ConfigError("token ids must be one-dimensional, got lists of different lengths") from error
    if array.ndim != 1:
        raise ConfigError(f"token ids must be one-dimensional, got shape {array.shape}")
    if array.dtype == np.uint32:
        return np.ascontiguousarray(array)
    if array.size == 0:
        return np.empty(0, dtype=np.uint32)
    if array.dtype.kind not in "iu":
        raise ConfigError(
            f"token ids must be integers, got dtype {array.dtype}", hint="pass a list of int or a u32 array"
        )
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest > TOKEN_MAX:
        wrong = lowest if lowest < 0 else highest
        raise ConfigError(f"token id {wrong} is outside 0 .. {TOKEN_MAX}")
    return np.ascontiguousarray(array, dtype=np.uint32)


def whole_pages(tokens_count: int, page_tokens: int) -> int:
    """How many whole pages fit in `tokens_count` tokens; rule K-2."""
    return tokens_count // page_tokens


def page_keys(parent: bytes, tokens: Tokens, page_tokens: int) -> Iterator[bytes]:
    """Keys of consecutive pages, 32 bytes each, never cut; rule K-4.

    Args:
        parent: key of the page before, or `Namespace.seed()` for the first page.
        tokens: whole pages of token ids, u32; hashed in little-endian order.
        page_tokens: tokens a page.
    """
    data = tokens.astype("<u4", copy=False)
    for first in range(0, len(data), page_tokens):
        digest = hashlib.sha256(parent)
        digest.update(data[first : first + page_tokens].tobytes())
        parent = digest.digest()
        yield parent
