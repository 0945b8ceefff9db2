"""Reads objects out of stores and takes only what is proved to be right."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from graftline.tiers.device import Rows
from graftline.tiers.store.chain import ChainStore, Got
from graftline.tiers.store.lookup import ObjectRead, StoredComponent
from graftline.tiers.store.objects import BadObjectError, decode

BATCH_BYTES = 32 * 2**20
"""Most bytes of objects that one call asks for, unless a single object is larger."""


@dataclass(frozen=True, slots=True)
class ObjectGot:
    """One object read.

    Attributes:
        read: what was asked for. rows: its values, read-only, row i is page `read.place.first_page + i`;
        None when no store had a good one. got: its bytes and where they came from; for `ChainStore.fill`.
        bad: why the last one that came was not taken; empty when none came but good ones.
    """

    read: ObjectRead
    rows: Rows | None
    got: Got
    bad: str = ""


def read_objects(
    stores: ChainStore,
    components: Sequence[StoredComponent],
    reads: Sequence[ObjectRead],
    deadline_s: float | None = None,
    faults: set[str] | None = None,
) -> Iterator[ObjectGot]:
    """Reads objects in batches, and gives each as soon as its batch is there.

    What is missing, cut, damaged, swapped or foreign comes with None for its rows; the stores count the
    reason.

    Args:
        stores: where to read.
        components: those of the lookup that the reads came from.
        reads: what to read.
        deadline_s: for all of them together; None leaves each call to its guard.
        faults: gets the reasons of the stores that were passed over.
    Raises:
        StoreError: a call failed in every store.
    """
    end_s = None if deadline_s is None else time.monotonic() + deadline_s
    for batch in in_batches(reads, BATCH_BYTES):
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        yield from _read_batch(stores, components, batch, left_s, faults)


def _read_batch(
    stores: ChainStore,
    components: Sequence[StoredComponent],
    batch: list[ObjectRead],
    left_s: float | None,
    faults: set[str] | None,
) -> Iterator[ObjectGot]:
    rows: list[Rows | None] = [None] * len(batch)
    bad = [""] * len(batch)

    def check(index: int, data: memoryview) -> str:
        read = batch[index]
        try:
            rows[index] = decode(components[read.component].layout, read.place, data)
        except BadObjectError as error:
            bad[index] = error.reason
            return error.reason
        return ""

    gots = stores.get_checked(
        [read.key for read in batch], [read.object_bytes for read in batch], check, left_s, faults
    )
    yield from map(ObjectGot, batch, rows, gots, bad)


class Sized(Protocol):
    """An object of known length."""

    @property
    def object_bytes(self) -> int:
        """Its length."""


Item = TypeVar("Item", bound=Sized)


def in_batches(items: Sequence[Item], batch_bytes_max: int) -> Iterator[list[Item]]:
    """Items in their order, as many at once as have so many bytes together; at least one."""
    batch: list[Item] = []
    batch_bytes = 0
    for item in items:
        if batch and batch_bytes + item.object_bytes > batch_bytes_max:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += item.object_bytes
    if batch:
        yield batch
