"""The bytes of a store's objects and their keys; `docs/reference/store-format.md` is the page about them.

An object is some consecutive pages of one component on one path. It repeats all that it was made for (key,
place, tokens, layout) and ends with a checksum over everything before it, so that whoever reads one needs to
trust nothing: a cut, damaged, swapped or foreign object is told from a good one, by a reason for counters.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graftline.errors import ConfigError, GraftlineError
from graftline.key import Tokens
from graftline.tiers.device import Rows
from graftline.tiers.store.base import Buffer, Key

MAGIC = b"graftobj"
VERSION = 1
KEY_BYTES = 32
CHECKSUM_BYTES = 32
PAYLOAD_ALIGN = 64
NAME_BYTES_MAX = 255
BAD_REASONS = ("cut", "magic", "version", "checksum", "key", "layout", "place", "tokens")
"""Why an object is not used, in the order in which it is judged."""

# The fields of _Head, in its order.
_HEADER = struct.Struct("<8sHHIQIIQ32s32s32s")
_KEY_DOMAIN = b"graftline/store/key/"
_LAYOUT_DOMAIN = b"graftline/store/layout/"


class BadObjectError(GraftlineError):
    """The bytes read are not the object asked for.

    Args:
        reason: one of `BAD_REASONS`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def object_key(chain_key: bytes, component: str, layout_digest: bytes, version: int = VERSION) -> Key:
    """Name of an object in every store: SHA-256, 32 bytes, never cut.

    Args:
        chain_key: key of its last page (rule K-4); it stands for namespace, tokens and place.
        component: whose values they are.
        layout_digest: of `layout_digest()`.
        version: of the object format.
    """
    name = component.encode()
    digest = hashlib.sha256(_KEY_DOMAIN)
    digest.update(struct.pack("<HH", version, len(name)))
    digest.update(name)
    digest.update(layout_digest)
    digest.update(chain_key)
    return digest.digest()


def layout_digest(layout: str, page_tokens: int, group_pages: int) -> bytes:
    """32 bytes that two pools share only when a slot's bytes and the cut into objects mean the same in both.

    Args:
        layout: text of names, dtypes and shapes of the pool, and of all else that a row depends on.
        page_tokens: tokens a page.
        group_pages: pages of a group; 1 for components that are not grouped.
    """
    text = layout.encode()
    digest = hashlib.sha256(_LAYOUT_DOMAIN)
    digest.update(struct.pack("<IIQ", page_tokens, group_pages, len(text)))
    digest.update(text)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """What all objects of one component share in one cache.

    Attributes:
        component: its name.
        digest: of `layout_digest()`, 32 bytes.
        page_tokens: tokens a page.
        slot_bytes: bytes of one row.
    """

    component: str
    digest: bytes
    page_tokens: int
    slot_bytes: int

    def __post_init__(self) -> None:
        if not 0 < len(self.component.encode()) <= NAME_BYTES_MAX:
            raise ConfigError(f"component name '{self.component}' must have 1 to {NAME_BYTES_MAX} bytes")
        if len(self.digest) != KEY_BYTES:
            raise ConfigError(f"layout digest has {len(self.digest)} bytes, it must have {KEY_BYTES}")
        if self.page_tokens < 1 or self.slot_bytes < 1:
            raise ConfigError(
                f"page_tokens {self.page_tokens} and slot_bytes {self.slot_bytes} must be at least 1"
            )

    def key(self, chain_key: bytes) -> Key:
        """Key of the object whose last page has this chain key."""
        return object_key(chain_key, self.component, self.digest)

    @property
    def tokens_offset(self) -> int:
        """Where the token ids begin."""
        return _aligned(_HEADER.size + len(self.component.encode()), 8)

    def payload_offset(self, pages: int) -> int:
        """Where the rows begin, a multiple of `PAYLOAD_ALIGN`."""
        return _aligned(self.tokens_offset + 4 * pages * self.page_tokens, PAYLOAD_ALIGN)

    def object_bytes(self, pages: int) -> int:
        """Length of an object of so many pages, all included."""
        return self.payload_offset(pages) + pages * self.slot_bytes + CHECKSUM_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class ObjectPlace:
    """Which pages of which path an object holds.

    Attributes:
        first_page: index of the first, counted from the start of the prefix.
        tokens: ids of all its pages, u32, shape (pages * page_tokens,).
        parent_key: chain key of the page before the first, or the namespace's seed.
        chain_key: chain key of its last page.
    """

    first_page: int
    tokens: Tokens
    parent_key: bytes
    chain_key: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Tokens and page keys of one prefix: where places are cut from.

    Attributes:
        tokens: u32, whole pages.
        seed: of the namespace.
        keys: chain key of each page, `list(page_keys(seed, tokens, page_tokens))`.
        page_tokens: tokens a page.
    """

    tokens: Tokens
    seed: bytes
    keys: Sequence[bytes]
    page_tokens: int

    def place(self, first_page: int, end_page: int) -> ObjectPlace:
        """Place of the pages `[first_page, end_page)`, at least one; the tokens are a view."""
        return ObjectPlace(
            first_page,
            self.tokens[first_page * self.page_tokens : end_page * self.page_tokens],
            self.keys[first_page - 1] if first_page else self.seed,
            self.keys[end_page - 1],
        )


def _aligned(offset: int, step: int) -> int:
    return -(-offset // step) * step


def blank(layout: ObjectLayout, place: ObjectPlace) -> tuple[memoryview, Rows]:
    """An object without its values, and the rows (a view of it) for the caller to fill; then `seal` it."""
    pages = len(place.tokens) // layout.page_tokens
    payload_at, payload_bytes = layout.payload_offset(pages), pages * layout.slot_bytes
    data = np.empty(layout.object_bytes(pages), dtype=np.uint8)
    data[:payload_at] = 0
    name = layout.component.encode()
    _HEADER.pack_into(
        data.data, 0, MAGIC, VERSION, len(name), layout.page_tokens, place.first_page, pages, 0,
        payload_bytes, layout.key(place.chain_key), place.parent_key, layout.digest,
    )  # fmt: skip
    data[_HEADER.size : _HEADER.size + len(name)] = np.frombuffer(name, np.uint8)
    tokens = place.tokens.astype("<u4", copy=False)
    data[layout.tokens_offset : layout.tokens_offset + tokens.nbytes] = tokens.view(np.uint8)
    rows = data[payload_at : payload_at + payload_bytes].reshape(pages, layout.slot_bytes)
    return data.data, rows


def seal(data: memoryview) -> None:
    """Writes the checksum over all that comes before it. Cost: SHA-256; lets other threads run."""
    data[-CHECKSUM_BYTES:] = hashlib.sha256(data[:-CHECKSUM_BYTES]).digest()


def encode(layout: ObjectLayout, place: ObjectPlace, rows: Rows) -> memoryview:
    """The object of some pages. `blank` and `seal` do the same without a copy of gathered rows.

    Args:
        layout: of the component.
        place: of the pages.
        rows: their values, u8, shape (pages, slot_bytes).
    """
    data, target = blank(layout, place)
    if rows.shape != target.shape:
        raise ConfigError(f"rows have shape {rows.shape}, this object needs {target.shape}")
    target[:] = rows
    seal(data)
    return data


class _Head(NamedTuple):
    """The first bytes of an object, in their order."""

    magic: bytes
    version: int
    name_bytes: int
    page_tokens: int
    first_page: int
    pages: int
    zero: int
    payload_bytes: int
    key: bytes
    parent_key: bytes
    digest: bytes


def decode(layout: ObjectLayout, place: ObjectPlace, data: Buffer) -> Rows:
    """Values of the object that was asked for, as a read-only view of `data`, shape (pages, slot_bytes).

    Args:
        layout: of the component.
        place: what the object must be.
        data: exactly the bytes that the store gave.
    Raises:
        BadObjectError: it is anything else.
    """
    view = memoryview(data).cast("B")
    reason = _damage(view) or _difference(layout, place, view)
    if reason:
        end_page = place.first_page + len(place.tokens) // layout.page_tokens
        what = f"pages {place.first_page} to {end_page} of '{layout.component}'"
        raise BadObjectError(reason, f"the object read for {what} is not used: {reason}")
    pages = len(place.tokens) // layout.page_tokens
    rows = np.frombuffer(view, np.uint8, pages * layout.slot_bytes, layout.payload_offset(pages))
    rows.flags.writeable = False
    return rows.reshape(pages, layout.slot_bytes)


def _damage(view: memoryview) -> str:
    """Why the bytes are no whole object of this format at all; empty when they are one."""
    if len(view) < _HEADER.size + CHECKSUM_BYTES:
        return "cut"
    head = _Head._make(_HEADER.unpack_from(view))
    if head.magic != MAGIC:
        return "magic"
    if head.version != VERSION:
        return "version"
    tokens_at = _aligned(_HEADER.size + head.name_bytes, 8)
    payload_at = _aligned(tokens_at + 4 * head.pages * head.page_tokens, PAYLOAD_ALIGN)
    if len(view) != payload_at + head.payload_bytes + CHECKSUM_BYTES:
        return "cut"
    good = hashlib.sha256(view[:-CHECKSUM_BYTES]).digest() == view[-CHECKSUM_BYTES:]
    return "" if good else "checksum"


def _difference(layout: ObjectLayout, place: ObjectPlace, view: memoryview) -> str:
    """In what a whole object is not the one asked for; empty when it is."""
    head = _Head._make(_HEADER.unpack_from(view))
    name = bytes(view[_HEADER.size : _HEADER.size + head.name_bytes])
    sizes = (head.page_tokens, head.payload_bytes, head.zero)
    pages = len(place.tokens) // layout.page_tokens
    tokens = place.tokens.astype("<u4", copy=False)
    tokens_at = layout.tokens_offset
    checks = (
        ("key", head.key == layout.key(place.chain_key)),
        ("layout", (name, head.digest) == (layout.component.encode(), layout.digest)),
        ("layout", sizes == (layout.page_tokens, head.pages * layout.slot_bytes, 0)),
        ("place", (head.first_page, head.pages) == (place.first_page, pages)),
        ("place", head.parent_key == place.parent_key),
        ("tokens", view[tokens_at : tokens_at + tokens.nbytes] == tokens.view(np.uint8).data),
    )
    return next((reason for reason, same in checks if not same), "")
