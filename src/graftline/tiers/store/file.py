"""A store in a folder: the embedded default. Many processes of one machine may use a folder at once.

    objects/ab/c/KEY      one file an object; KEY in hex, spread over 256 x 16 folders
    tmp/ID.lock, tmp/ID-N temporary files and who they belong to (`file_session.py`)
    usage                 the shared count of bytes and objects (`file_usage.py`)
    lock                  taken while room is made (`file_room.py`)

An object is written to a temporary file and renamed, so it is there as a whole or not at all; a process may
be killed at any moment. Without `sync` a power failure may leave damaged objects: the reader finds them by
their checksum.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.file_room import SPARE_SHARE, Room, objects_in
from graftline.tiers.store.file_session import Session, sweep
from graftline.tiers.store.file_usage import Usage, Used
from graftline.tiers.store.local import parse_local_url

DEFAULT_BYTES = 10 * 10**9
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a foreign pipe must not block
_FOLDER_TRIES = 2


class FileStore:
    """Objects as files, bounded in bytes; least recently used ones leave first.

    The folder may be read-only (then it only reads), may be deleted while in use (then it is made again), and
    may hold foreign files (they are left alone).

    Args:
        root: the folder; made, for its user alone, when it is not there.
        capacity_bytes: most bytes of objects.
        sync: whether an object is on the disk before `put` returns.
        url: as it was opened.
    Raises:
        ConfigError: `root` is something else than a folder.
    """

    def __init__(
        self, root: Path, capacity_bytes: int = DEFAULT_BYTES, *, sync: bool = False, url: str = ""
    ) -> None:
        self.url = url or f"file:{root}"
        self._root = root.absolute()
        if self._root.exists() and not self._root.is_dir():
            raise ConfigError(f"store '{self.url}': {self._root} is no folder")
        self._objects = str(self._root / "objects")
        self._capacity_bytes = capacity_bytes
        self._sync = sync
        self._usage = Usage(self._root / "usage")
        self._room = Room(self._root, self._usage, capacity_bytes, lambda: self._writable().scratch())
        self._session: Session | None = None
        self._session_lock = threading.Lock()
        self._closed = False
        self.swept_files = 0
        """Temporary files of dead processes that were removed."""
        with suppress(StoreError):  # a folder that can only be read
            self._writable()

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """Which objects are there; counts no use. Cost: one `stat` a key."""
        self._check_open()
        return [self._size_of(self._path(key)) > 0 for key in keys]

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """Reads objects; 0 for a missing one, for one that does not fit, and for what is no plain file."""
        self._check_open()
        return [self._get(self._path(key), buffer) for key, buffer in zip(keys, buffers, strict=True)]

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """Writes objects; one of the same length that is there already is kept.

        Raises:
            StoreError: `refused` when the folder cannot be written, `full` when there was no room for any.
        """
        self._check_open()
        done, reason = [], ""
        for key, value in zip(keys, values, strict=True):
            why = self._put(self._path(key), memoryview(value).cast("B"))
            done.append(not why)
            reason = reason or why
        if reason and not any(done):
            raise StoreError(reason, f"store '{self.url}' takes no objects: {reason}")
        return done

    def remove(self, keys: Sequence[Key]) -> None:
        """Removes objects."""
        self._check_open()
        with self._faults():
            for path in map(self._path, keys):
                size = self._size_of(path)
                if size > 0 and _unlink(path):
                    self._usage.add(-size, -1)

    def clear(self) -> None:
        """Removes every object, also those that other processes wrote."""
        self._check_open()
        self._writable()
        with self._faults():
            for entry in objects_in(self._root / "objects"):
                _unlink(entry.path)
            self._room.count()

    def stat(self) -> StoreStat:
        """Sizes by the shared count. Cost: looks at every object where nobody has counted yet."""
        self._check_open()
        with self._faults():
            used = self._usage.read()
            if used is None:
                with suppress(OSError):
                    self._room.count()
                used = self._usage.read() or self._room.look()
            return StoreStat(max(0, used.objects), max(0, used.stored_bytes), self._capacity_bytes)

    def close(self) -> None:
        """Lets go of files and of the temporary names."""
        with self._session_lock:
            self._closed = True
            if self._session is not None:
                self._session.close()
                self._session = None
        self._usage.close()

    def _path(self, key: Key) -> str:
        name = key.hex()
        return f"{self._objects}/{name[:2]}/{name[2]}/{name}"

    @staticmethod
    def _size_of(path: str) -> int:
        """Bytes of an object; 0 when it is not there, or no plain file."""
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    @staticmethod
    def _get(path: str, buffer: memoryview) -> int:
        try:
            fd = os.open(path, _READ_FLAGS)
        except OSError:
            return 0
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= len(buffer):
                return 0
            filled = _read_into(fd, buffer[: status.st_size])
            _mark_used(fd)
            return filled
        except OSError:
            return 0
        finally:
            os.close(fd)

    def _put(self, path: str, value: memoryview) -> str:
        """Why the object is not there afterwards; empty when it is."""
        old_bytes = self._size_of(path)
        if old_bytes == len(value):
            _mark_used(path)
            return ""
        change = Used(len(value) - old_bytes, 0 if old_bytes else 1)
        try:
            try:
                self._write_reserved(path, value, change)
            except StoreError as error:
                if error.reason != "full" or not isinstance(error.__cause__, OSError):
                    raise
                self._make_room_on_disk(len(value))
                self._write_reserved(path, value, change)
        except StoreError as error:
            if error.reason not in ("full", "refused"):
                raise
            return error.reason
        return ""

    def _make_room_on_disk(self, wanted_bytes: int) -> None:
        """The disk is full below the capacity: the coldest objects make room for the new ones."""
        with self._faults():
            used = self._usage.read()
            if used is not None:
                spare_bytes = max(8 * wanted_bytes, int(used.stored_bytes * SPARE_SHARE))
                self._room.shrink_to(max(0, used.stored_bytes - spare_bytes))

    def _write_reserved(self, path: str, value: memoryview, change: Used) -> None:
        """Writes one object within the promised bound."""
        self._writable()
        with self._faults():
            if not self._room.reserve(change):
                raise StoreError("full", f"store '{self.url}' has no room for {len(value)} bytes now")
            try:
                self._write(path, value)
            except BaseException:
                with suppress(OSError):
                    self._usage.add(-change.stored_bytes, -change.objects)
                raise

    def _write(self, path: str, value: memoryview) -> None:
        for attempt in range(_FOLDER_TRIES):
            scratch = self._writable().scratch()
            try:
                self._write_scratch(scratch, value)
                self._rename(scratch, path)
            except FileNotFoundError:  # the folder was deleted meanwhile
                if attempt + 1 == _FOLDER_TRIES:
                    raise
            except OSError:
                with suppress(OSError):
                    _unlink(scratch)
                raise
            else:
                return

    def _write_scratch(self, scratch: str, value: memoryview) -> None:
        fd = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        try:
            left = value
            while left:
                left = left[os.write(fd, left) :]
            _mark_used(fd)
            if self._sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _rename(self, scratch: str, path: str) -> None:
        try:
            os.rename(scratch, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(scratch, path)
        if self._sync:
            fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _writable(self) -> Session:
        """The session; makes what is missing of the folder.

        Raises:
            StoreError: it cannot be made.
        """
        with self._session_lock, self._faults():
            if self._closed:
                raise StoreError("closed", f"store '{self.url}' was closed")
            if self._session is not None and self._session.alive():
                return self._session
            if self._session is not None:
                self._session.close()
                self._session = None
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)  # values tell about the prompts
            scratch = self._root / "tmp"
            scratch.mkdir(exist_ok=True)
            self.swept_files += sweep(scratch)
            self._session = Session(scratch)
            return self._session

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Errors of the file system as errors of the store."""
        try:
            yield
        except OSError as error:
            number = error.errno
            reason = "full" if number in _FULL else "refused" if number in _REFUSED else "down"
            raise StoreError(reason, f"store '{self.url}': {error}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("closed", f"store '{self.url}' was closed")


def _read_into(fd: int, buffer: memoryview) -> int:
    """Bytes read; fewer than asked for when the file is cut meanwhile."""
    filled = 0
    while filled < len(buffer):
        got = os.readv(fd, [buffer[filled:]])
        if got == 0:
            break
        filled += got
    return filled


def _mark_used(where: int | str) -> None:
    """Stamps the time of the last use."""
    now_ns = time.time_ns()
    with suppress(OSError):  # the folder may be read-only
        os.utime(where, ns=(now_ns, now_ns))


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def open_file(url: str) -> FileStore:
    """A store in a folder: `file:PATH?size=10GB&sync=0`.

    Raises:
        ConfigError: the URL makes no sense, or the path is no folder.
    """
    parts = parse_local_url(url, "file")
    parts.arguments_only(["size", "sync"])
    if not parts.path:
        raise ConfigError(
            f"store '{url}' names no folder", hint="write for example file:/var/cache/graftline"
        )
    return FileStore(
        Path(parts.path),
        parts.bytes_("size", DEFAULT_BYTES, 1),
        sync=bool(parts.whole("sync", 0, 0, 1)),
        url=url,
    )
