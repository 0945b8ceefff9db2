"""How many bytes and objects a folder holds, shared by all processes that write there, without a lock.

The file `usage` is a list of changes, 16 bytes each (bytes and objects, signed), that everyone appends to;
appends of this size are not torn. A process reads only what came since it last looked. A change is written
before the object appears and after it went, so that a process killed between the two leaves the sum too
high, never too low: room is then made earlier, and counting anew while making room mends it.
"""

from __future__ import annotations

import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

_CHANGE = struct.Struct("<qq")
COMPACT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Used:
    """What a folder holds."""

    stored_bytes: int
    objects: int


class Usage:
    """The shared count of one folder.

    Args:
        path: of the file `usage`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._can_write = False
        self._inode = 0
        self._offset = 0
        self._bytes = 0
        self._objects = 0
        self._lock = threading.Lock()

    def read(self) -> Used | None:
        """The sum now; None when nobody has counted yet."""
        with self._lock:
            return self._sum() if self._open() else None

    def add(self, stored_bytes: int, objects: int) -> bool:
        """Appends a change; False when nobody has counted yet."""
        with self._lock:
            if not self._open(writing=True):
                return False
            os.write(self._fd, _CHANGE.pack(stored_bytes, objects))
            return True

    def mark(self) -> int:
        """Where the list ends now; for `reset`."""
        with self._lock:
            return os.fstat(self._fd).st_size if self._open() else 0

    def reset(self, counted: Used, since: int, scratch: str) -> None:
        """Starts the list again with what was counted, under the lock of the folder.

        Args:
            counted: by looking at every object.
            since: `mark()` from before the counting; what was added since is added again, as the counting may
                have missed it.
            scratch: name for the new list before it takes its place.
        """
        with self._lock:
            added = self._added_since(since) if self._open() else Used(0, 0)
            total = Used(counted.stored_bytes + added.stored_bytes, counted.objects + added.objects)
            Path(scratch).write_bytes(_CHANGE.pack(total.stored_bytes, total.objects))
            os.replace(scratch, self._path)
            self._open()

    def close(self) -> None:
        """Lets go of the file."""
        with self._lock:
            self._close()

    def needs_compacting(self) -> bool:
        """Whether the list is long enough to be worth starting again."""
        return self._offset > COMPACT_BYTES

    def _added_since(self, offset: int) -> Used:
        data = os.pread(self._fd, os.fstat(self._fd).st_size - offset, offset)
        changes = list(_CHANGE.iter_unpack(data[: len(data) // _CHANGE.size * _CHANGE.size]))
        return Used(
            sum(max(0, change[0]) for change in changes), sum(max(0, change[1]) for change in changes)
        )

    def _sum(self) -> Used:
        size = os.fstat(self._fd).st_size
        if size > self._offset:
            data = os.pread(self._fd, size - self._offset, self._offset)
            whole = len(data) // _CHANGE.size * _CHANGE.size
            for stored_bytes, objects in _CHANGE.iter_unpack(data[:whole]):
                self._bytes += stored_bytes
                self._objects += objects
            self._offset += whole
        return Used(self._bytes, self._objects)

    def _open(self, *, writing: bool = False) -> bool:
        """Follows the file when another process has started it again; False when there is none."""
        try:
            inode = os.stat(self._path).st_ino
            if self._fd >= 0 and inode == self._inode and (self._can_write or not writing):
                return True
            self._close()
            self._can_write = writing or os.access(self._path, os.W_OK)
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND if self._can_write else os.O_RDONLY)
        except FileNotFoundError:
            self._close()
            return False
        self._inode = os.fstat(self._fd).st_ino
        self._offset = self._bytes = self._objects = 0
        return True

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
