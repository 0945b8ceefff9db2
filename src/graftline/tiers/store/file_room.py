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

QUEUE_MAX = 1 << 16
LOCK_WAIT_S = 1.0
_LOCK_STEP_S = 0.005
_NAME_LETTERS = 64
_COUNTS_MAX = 4  # in one making of room


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
        scratch: gives names for new files.
    """

    def __init__(self, root: Path, usage: Usage, scratch: Callable[[], str]) -> None:
        self._root = root
        self._usage = usage
        self._scratch = scratch
        self._coldest: list[tuple[int, int, str]] = []  # time of use, bytes, path; the coldest last
        self._mutex = threading.Lock()

    def shrink_to(self, target_bytes: int, start_bytes: int) -> bool:
        """Removes the coldest until at most `target_bytes` are left, if there are more than `start_bytes`.

        Returns:
            Whether at most `start_bytes` are left; False also when another process holds the lock too long.
        Raises:
            OSError: the folder cannot be read or written.
        """
        with self._mutex, self._folder_lock() as locked:
            if not locked:
                return False
            used = self._usage.read() or self._count()
            if used.stored_bytes > start_bytes:
                used = self._remove_down_to(target_bytes)
            return used.stored_bytes <= start_bytes

    def count(self) -> Used | None:
        """Counts all objects anew; None when another process holds the lock for too long."""
        with self._mutex, self._folder_lock() as locked:
            return self._count() if locked else None

    def _remove_down_to(self, target_bytes: int) -> Used:
        used = self._usage.read() or self._count()
        for _ in range(_COUNTS_MAX):
            while self._coldest and used.stored_bytes > target_bytes:
                self._remove_coldest(used.stored_bytes - target_bytes)
                used = self._usage.read() or self._count()
            if used.stored_bytes <= target_bytes:
                break
            used = self._count()  # the queue is used up, or what is left was used meanwhile
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

    def _count(self) -> Used:
        """Looks at every object and starts the shared count again."""
        since = self._usage.mark()
        counted = self.look()
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
        fd = os.open(self._root / "lock", os.O_CREAT | os.O_RDWR, 0o644)
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
