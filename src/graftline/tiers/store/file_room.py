"""Makes room in a store's folder: the objects that were used longest ago leave first.

The time of change of an object's file is the time of its last use. All objects are looked at once, and the
coldest are kept in a queue; while it lasts nothing is looked at again, for whatever was used or written
since is warmer than all that is in it. One process at a time makes room, under a lock on the file `lock`.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from heapq import nsmallest
from pathlib import Path

from graftline.tiers.store.base import StoreError
from graftline.tiers.store.file_usage import Usage, Used

SPARE_SHARE = 0.1
"""Share of the capacity that making room frees beyond what is needed, so that it is seldom done."""
QUEUE_MAX = 1 << 16
LOCK_WAIT_S = 1.0
_LOCK_STEP_S = 0.005
_NAME_LETTERS = 64
_COUNTS_MAX = 4  # in one making of room
_NOTHING = Used(0, 0)


def objects_in(folder: Path) -> Iterator[os.DirEntry[str]]:
    """All objects of a folder, two levels down; foreign names are left out. Folders may go meanwhile."""
    for outer in _entries(folder):
        for inner in _entries(outer.path):
            for entry in _entries(inner.path):
                if len(entry.name) == _NAME_LETTERS:
                    yield entry


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


class Room:
    """Frees bytes of one folder.

    Args:
        root: the store's folder.
        usage: its shared count.
        capacity_bytes: most bytes of objects.
        scratch: gives names for new files.
    """

    def __init__(self, root: Path, usage: Usage, capacity_bytes: int, scratch: Callable[[], str]) -> None:
        self._root = root
        self._usage = usage
        self._capacity_bytes = capacity_bytes
        self._scratch = scratch
        self._coldest: list[tuple[int, int, str]] = []  # time of use, bytes, path; the coldest last
        self._mutex = threading.Lock()

    def reserve(self, change: Used) -> bool:
        """Counts an object before it is written, and makes room for it.

        The capacity may be passed by what other processes are writing while objects are counted anew.

        Returns:
            Whether it may be written; False also when another process holds the lock too long.
        Raises:
            OSError: the folder cannot be read or written.
        """
        if change.stored_bytes > self._capacity_bytes:
            return False
        if not self._usage.add(change.stored_bytes, change.objects) or self._usage.needs_compacting():
            self.count(change)
        used = self._usage.read()
        if used is None or used.stored_bytes <= self._capacity_bytes:
            return True
        target_bytes = max(change.stored_bytes, int(self._capacity_bytes * (1 - SPARE_SHARE)))
        if self.shrink_to(target_bytes, change):
            return True
        self._usage.add(-change.stored_bytes, -change.objects)
        return False

    def shrink_to(self, target_bytes: int, reserved: Used = _NOTHING) -> bool:
        """Removes the coldest until at most `target_bytes` are left, `reserved` included.

        Returns:
            Whether that, or at least the capacity, was reached.
        Raises:
            OSError: the folder cannot be read or written.
        """
        with self._mutex, self._folder_lock() as locked:
            used = self._remove_down_to(target_bytes, reserved) if locked else self._usage.read()
            return used is not None and used.stored_bytes <= self._capacity_bytes

    def count(self, reserved: Used = _NOTHING) -> None:
        """Counts all objects anew, unless another process holds the lock too long."""
        with self._mutex, self._folder_lock() as locked:
            if locked:
                self._count(reserved)

    def _remove_down_to(self, target_bytes: int, reserved: Used) -> Used:
        used = self._usage.read() or self._count(reserved)
        for _ in range(_COUNTS_MAX):
            while self._coldest and used.stored_bytes > target_bytes:
                self._remove_coldest(used.stored_bytes - target_bytes)
                used = self._usage.read() or self._count(reserved)
            if used.stored_bytes <= target_bytes:
                break
            used = self._count(reserved)  # the queue is used up, or what is left was used meanwhile
        return used

    def _remove_coldest(self, wanted_bytes: int) -> None:
        freed = removed = 0
        while self._coldest and freed < wanted_bytes:
            used_at, size, path = self._coldest.pop()
            try:
                if os.stat(path).st_mtime_ns != used_at:
                    continue
                os.unlink(path)
            except FileNotFoundError:
                continue
            freed, removed = freed + size, removed + 1
        self._usage.add(-freed, -removed)

    def _count(self, reserved: Used) -> Used:
        """Looks at every object and starts the shared count again."""
        since = self._usage.mark()
        found = self.look()
        counted = Used(found.stored_bytes + reserved.stored_bytes, found.objects + reserved.objects)
        with suppress(OSError, StoreError):  # a full disk: room can be made all the same
            self._usage.reset(counted, since, self._scratch())
        return self._usage.read() or counted

    def look(self) -> Used:
        """Looks at every object and fills the queue; changes nothing."""
        found = []
        for entry in objects_in(self._root / "objects"):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            found.append((status.st_mtime_ns, status.st_size, entry.path))
        self._coldest = nsmallest(QUEUE_MAX, found)[::-1]
        return Used(sum(size for _, size, _ in found), len(found))

    @contextmanager
    def _folder_lock(self) -> Iterator[bool]:
        """Holds the lock of the folder; gives False when it cannot be had in time. A dead holder frees it."""
        fd = os.open(self._root / "lock", os.O_CREAT | os.O_RDWR, 0o666)
        try:
            yield _lock_in_time(fd)
        finally:
            os.close(fd)


def _lock_in_time(fd: int) -> bool:
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(_LOCK_STEP_S)
        else:
            return True
