"""Temporary files of one process in a store's folder, and the sweeping of those whose process died.

Each opened store has a session: a locked file `tmp/ID.lock`. Its temporary files are `tmp/ID-N`. The lock
goes with the process, however that ends and in whatever container it ran; a lock that can be taken belongs
to nobody.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from itertools import count
from pathlib import Path

LOCK_SUFFIX = ".lock"


class Session:
    """Temporary names in `folder`, which exists and can be written.

    Raises:
        OSError: the lock cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        while True:  # a sweeper may take a new lock in the moment before its owner does
            self._id = uuid.uuid4().hex
            self._lock_path = folder / (self._id + LOCK_SUFFIX)
            self._prefix = str(folder / f"{self._id}-")
            self._fd = os.open(self._lock_path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
            if _try_lock(self._fd) and self.alive():
                return
            os.close(self._fd)

    def scratch(self) -> str:
        """A path that nobody else uses."""
        return f"{self._prefix}{next(self._numbers)}"

    def alive(self) -> bool:
        """Whether the lock is still there: not so after the folder was deleted."""
        try:
            return os.stat(self._lock_path).st_ino == os.fstat(self._fd).st_ino
        except OSError:
            return False

    def close(self) -> None:
        """Gives the names up."""
        if self._fd >= 0:
            if self.alive():
                self._lock_path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def sweep(folder: Path) -> int:
    """Removes the temporary files of dead processes; returns how many.

    Raises:
        OSError: the folder cannot be read or written.
    """
    names = os.listdir(folder)
    swept = 0
    for name in names:
        if name.endswith(LOCK_SUFFIX):
            swept += _sweep_session(folder, name.removesuffix(LOCK_SUFFIX))
    for name in names:
        owner = name.rpartition("-")[0]
        if owner and not (folder / (owner + LOCK_SUFFIX)).exists():
            swept += _unlink(folder / name)
    return swept


def _sweep_session(folder: Path, owner: str) -> int:
    lock_path = folder / (owner + LOCK_SUFFIX)
    try:
        fd = os.open(lock_path, os.O_RDWR)
    except OSError:  # gone meanwhile, or no file of ours
        return 0
    try:
        if not _try_lock(fd):
            return 0
        swept = sum(_unlink(path) for path in folder.glob(f"{owner}-*"))
        _unlink(lock_path)
        return swept
    finally:
        os.close(fd)


def _unlink(path: Path) -> int:
    try:
        path.unlink()
    except OSError:  # gone meanwhile, or no file of ours
        return 0
    return 1


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
