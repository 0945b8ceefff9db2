"""The file store: its bound, its order of leaving, and folders that misbehave."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graftline.errors import ConfigError
from graftline.tiers.store import file_room, file_usage
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.file import FileStore, open_file
from tiers.store.conformance import content, key, read

KB = 1000


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "store"


def fill(store, numbers, size: int = 8 * KB) -> list[bool]:
    return [store.put([key(i)], [content(i, size)])[0] for i in numbers]


def there(store, numbers) -> list[int]:
    numbers = list(numbers)
    return [i for i, here in zip(numbers, store.exists([key(i) for i in numbers]), strict=True) if here]


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "objects").rglob("*") if path.is_file())


def scratch_files(folder: Path) -> list[str]:
    return [path.name for path in (folder / "tmp").iterdir() if not path.name.endswith(".lock")]


def reason_of(call) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own, where that is allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a file system here: {error}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize


@pytest.mark.rule("B-7")
def test_the_least_recently_used_leave_first_and_the_bound_holds(folder):
    store = FileStore(folder, 100 * KB)
    fill(store, range(10))
    assert there(store, range(10)) == list(range(10))
    read(store, [key(0)], 8 * KB)  # used again
    store.put([key(1)], [content(1, 8 * KB)])  # given again counts as used
    store.exists([key(2)])  # asking counts as nothing
    for i in range(10, 40):
        fill(store, [i])
        assert on_disk(folder) <= 100 * KB
        assert store.stat().stored_bytes == on_disk(folder)
        if i == 15:
            assert 0 in there(store, range(40))
            assert 1 in there(store, range(40))
            assert 2 not in there(store, range(40))
    kept = there(store, range(40))
    assert len(kept) >= 10
    assert kept == list(range(40 - len(kept), 40))
    store.close()


@pytest.mark.rule("B-7")
def test_what_is_used_after_the_objects_were_looked_at_does_not_leave(folder):
    """Making room looks at the objects once and remembers; what was remembered as cold may be warm by now."""
    store = FileStore(folder, 100 * KB)
    fill(store, range(13))
    assert there(store, range(13)) == list(range(2, 13)), "room was made once"
    read(store, [key(3)], 8 * KB)
    other = FileStore(folder, 100 * KB)
    read(other, [key(5)], 8 * KB)
    fill(store, range(13, 17))
    assert there(store, range(17)) == [3, 5, *range(8, 17)]
    store.close()
    other.close()


@pytest.mark.rule("B-7")
def test_an_object_larger_than_the_store_is_refused_and_nothing_leaves_for_it(folder):
    store = FileStore(folder, 20 * KB)
    fill(store, [1])
    assert reason_of(lambda: fill(store, [2], 20 * KB + 1)) == "full"
    assert store.put([key(3), key(4)], [content(3, 30 * KB), content(4, 1 * KB)]) == [False, True]
    assert there(store, range(5)) == [1, 4]
    fill(store, [5], 20 * KB)
    assert there(store, range(6)) == [5]
    assert on_disk(folder) == 20 * KB
    store.close()


@pytest.mark.rule("B-7")
def test_openings_of_one_folder_share_its_bound(folder):
    first, second = FileStore(folder, 50 * KB), FileStore(folder, 50 * KB)
    for i in range(30):
        fill(first if i % 2 else second, [i])
        assert on_disk(folder) <= 50 * KB
    assert first.stat() == second.stat()
    assert first.stat().stored_bytes == on_disk(folder)
    assert there(first, range(30)) == there(second, range(30)) != []
    first.close()
    second.close()


@pytest.mark.rule("B-7")
def test_a_wrong_count_mends_itself(folder):
    """Objects taken away from outside, and a process that died between counting and writing."""
    store = FileStore(folder, 100 * KB)
    fill(store, range(12))
    for path in list((folder / "objects").rglob("*")):
        if path.is_file() and path.name != key(11).hex():
            path.unlink()
    assert store.stat().stored_bytes == 96 * KB
    fill(store, range(20, 31))
    assert there(store, range(20, 31)) == list(range(20, 31)), "nothing may leave for what is not there"
    assert store.stat().stored_bytes == on_disk(folder)
    store.close()


@pytest.mark.rule("B-7")
def test_the_list_of_changes_is_started_again_when_it_is_long(folder, monkeypatch):
    monkeypatch.setattr(file_usage, "COMPACT_BYTES", 1000)
    store = FileStore(folder, 100 * KB)
    other = FileStore(folder, 100 * KB)
    for i in range(300):
        fill(store, [i % 7])
        store.remove([key(i % 7 - 1)])
        assert (folder / "usage").stat().st_size <= 1000 + 64
    assert store.stat().stored_bytes == on_disk(folder) == other.stat().stored_bytes
    store.close()
    other.close()


@pytest.mark.rule("B-7")
def test_room_is_not_waited_for_without_end(folder, monkeypatch):
    """Another process holds the lock and does not let go: the bound holds, the object is refused."""
    monkeypatch.setattr(file_room, "LOCK_WAIT_S", 0.05)
    store = FileStore(folder, 20 * KB)
    fill(store, [1, 2])
    with open(folder / "lock", "w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert reason_of(lambda: fill(store, [3])) == "full"
        assert read(store, [key(1)], 8 * KB) == [content(1, 8 * KB)]
    assert fill(store, [3]) == [True]
    assert there(store, range(4)) == [1, 3]
    store.close()


@pytest.mark.rule("B-8")
def test_a_folder_that_can_only_be_read(folder):
    """Reads work, also in a process that opens it so; writes are refused."""
    with mounted(folder, "4m") if os.geteuid() == 0 else folder_of_ones_own(folder):
        writer = FileStore(folder)
        fill(writer, range(3))
        writer.close()
        set_writable(folder, writable=False)
        try:
            store = FileStore(folder)
            assert there(store, range(4)) == [0, 1, 2]
            assert read(store, [key(1)], 8 * KB) == [content(1, 8 * KB)]
            assert reason_of(lambda: fill(store, [3])) == "refused"
            assert reason_of(lambda: store.remove([key(0)])) == "refused"
            assert reason_of(store.clear) == "refused"
            assert store.stat().objects == 3
            assert there(store, range(4)) == [0, 1, 2]
            set_writable(folder, writable=True)
            assert fill(store, [3]) == [True], "it is noticed when the folder can be written again"
            store.close()
        finally:
            set_writable(folder, writable=True)


@contextmanager
def folder_of_ones_own(folder: Path) -> Iterator[None]:
    folder.mkdir()
    yield


def set_writable(folder: Path, *, writable: bool) -> None:
    """For root no file mode forbids anything: there the whole file system is switched."""
    if os.geteuid() == 0:
        mode = "rw" if writable else "ro"
        subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)
    else:
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755 if writable else 0o555)


@pytest.mark.rule("B-8")
def test_a_disk_that_is_full_before_the_store_is(folder):
    """The coldest make room for the new; a disk filled by others refuses, until there is room again."""
    with mounted(folder, "1m"):
        store = FileStore(folder, 10**9)
        assert all(fill(store, range(60), 40 * KB))
        kept = there(store, range(60))
        assert 10 < len(kept) < 30
        assert kept == list(range(60 - len(kept), 60))
        assert read(store, [key(i) for i in kept], 40 * KB) == [content(i, 40 * KB) for i in kept]
        assert scratch_files(folder) == []
        store.clear()
        with open(folder / "of others", "wb", buffering=0) as others, pytest.raises(OSError, match="space"):
            os.posix_fallocate(others.fileno(), 0, 1 << 20)
        with open(folder / "of others", "ab") as others:
            os.posix_fallocate(others.fileno(), 0, free_bytes(folder))
        assert reason_of(lambda: fill(store, [100], 40 * KB)) == "full"
        assert read(store, [key(100)], 40 * KB) == [b""]
        assert scratch_files(folder) == []
        (folder / "of others").unlink()
        assert fill(store, [100], 40 * KB) == [True]
        store.close()


@pytest.mark.rule("B-8")
def test_a_limit_on_the_size_of_files(folder):
    """The system ends a write half done: refused, nothing left behind, smaller objects still go in."""
    code = f"""
import resource
from pathlib import Path
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.file import FileStore
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
store = FileStore(Path({str(folder)!r}))
try:
    store.put([bytes(32)], [bytes(100_000)])
except StoreError as error:
    print(error.reason, store.exists([bytes(32)]), store.put([bytes(31) + b"1"], [bytes(40_000)]))
store.close()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("full [False] [True]\n", "")
    assert scratch_files(folder) == []
    assert on_disk(folder) == 40_000


@pytest.mark.rule("B-8")
def test_a_folder_that_is_deleted_in_use_is_made_again(folder):
    store = FileStore(folder, 100 * KB)
    fill(store, range(5))
    shutil.rmtree(folder)
    assert there(store, range(5)) == []
    assert read(store, [key(1)], 8 * KB) == [b""]
    store.remove([key(1)])
    assert store.stat().objects == 0
    shutil.rmtree(folder, ignore_errors=True)
    fill(store, range(5, 30))
    assert on_disk(folder) <= 100 * KB
    assert 29 in there(store, range(30))
    assert store.stat().stored_bytes == on_disk(folder)
    shutil.rmtree(folder / "tmp")
    fill(store, [31])
    shutil.rmtree(folder / "objects")
    fill(store, [32])
    assert there(store, range(33)) == [32]
    store.close()


@pytest.mark.rule("B-8")
def test_what_lies_at_the_place_of_an_object_is_read_as_it_is_or_missed(folder, tmp_path):
    """A foreign or cut file is found by its checksum; a folder, pipe or link is no object."""
    store = FileStore(folder)
    keys = [key(i) for i in range(5)]
    store.put(keys, [content(i, 500) for i in range(5)])
    paths = [Path(store._path(k)) for k in keys]
    (tmp_path / "elsewhere").write_bytes(b"x" * 100)
    for path in paths[1:]:
        path.unlink()
    paths[0].write_bytes(content(0, 500)[:200])
    paths[1].mkdir()
    os.mkfifo(paths[2])
    paths[3].symlink_to(tmp_path / "elsewhere")
    paths[4].write_bytes(b"")
    assert read(store, keys) == [content(0, 500)[:200], b"", b"", b"", b""]
    assert store.exists(keys) == [True, False, False, False, False]
    assert store.put([keys[0], keys[4]], [content(0, 500), content(4, 500)]) == [True, True]
    assert read(store, [keys[0], keys[4]]) == [content(0, 500), content(4, 500)]
    store.close()


@pytest.mark.rule("B-8")
def test_foreign_files_are_left_alone(folder):
    store = FileStore(folder, 50 * KB)
    fill(store, [0])
    place = Path(store._path(key(0))).parent
    foreign = [folder / "notes.txt", folder / "objects" / "readme", place / "short", place.parent / "x"]
    for path in foreign:
        path.write_text("mine")
    fill(store, range(1, 20))
    store.clear()
    assert there(store, range(20)) == []
    assert [path.read_text() for path in foreign] == ["mine"] * 4
    assert store.stat().stored_bytes == 0
    store.close()
    for name in ("a-1", "b.lock"):
        (folder / "tmp" / name).mkdir()
    store = FileStore(folder, 50 * KB)
    assert fill(store, range(10)) == [True] * 10
    store.close()


def test_the_folder_is_for_its_user_alone_unless_it_was_there(folder, tmp_path):
    (tmp_path / "shared").mkdir(mode=0o755)
    for root, mode in ((folder, 0o700), (tmp_path / "shared", 0o755)):
        FileStore(root).close()
        assert root.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(("sync", "synced"), [("0", 0), ("1", 4)])
def test_sync_waits_for_the_disk_file_and_folder(folder, monkeypatch, sync, synced):
    calls = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(fd), real(fd)))
    store = open_file(f"file:{folder}?sync={sync}")
    fill(store, [1, 2])
    assert len(calls) == synced
    store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:", "names no folder"),
        ("file:{tmp}/a?size=much", "size"),
        ("file:{tmp}/a?size=0", "size"),
        ("file:{tmp}/a?sync=yes", "sync"),
        ("file:{tmp}/a?siez=1GB", "did you mean 'size'"),
        ("file:{tmp}/a?size=1&size=2", "twice"),
        ("file:{tmp}/a?size", "name=value"),
        ("file://host{tmp}/a", "host"),
        ("file:{tmp}/plain", "no folder"),
    ],
)
def test_urls_that_make_no_sense(tmp_path, url, message):
    (tmp_path / "plain").write_text("a file")
    with pytest.raises(ConfigError, match=message):
        open_file(url.format(tmp=tmp_path))


def test_ways_to_write_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("file:a b/c", "file:a%20b/c", f"file:{tmp_path}/a b/c", f"file://{tmp_path}/a b/c?size=1MB"):
        store = open_file(url)
        store.put([key(1)], [b"1"])
        assert store.url == url
        store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]
    assert FileStore(tmp_path / "a b" / "c").stat().objects == 1
