"""The file store when processes die, and when several write at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from graftline.tiers.store.file import FileStore
from graftline.tiers.store.file_session import LOCK_SUFFIX

HERE = Path(__file__).parent


def run(script: str, *arguments: object) -> subprocess.Popen:
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict[str, int]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


@pytest.mark.rule("B-8")
def test_killed_200_times_while_writing(tmp_path):
    """After each kill: every object is whole or absent, nothing is left behind, the bound holds."""
    seen = result(run("kill_nine.py", tmp_path, 200))
    assert seen["kills"] == 200
    assert seen["rounds_with_leftovers"] >= 20, "the kills must hit writes half done"
    assert seen["held_min"] >= 1, "the store must go on keeping objects"
    assert seen["usage_bytes_max"] < 64 * 1024


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "objects").rglob("*") if path.is_file())


def look_at_one_moment(folder: Path, workers: list[subprocess.Popen]) -> int:
    """Bytes of all objects while everyone is stopped; whoever has ended stays so."""
    running = [worker.pid for worker in workers if worker.poll() is None]
    try:
        for pid in running:
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return stored_bytes(folder)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.rule("B-7")
def test_four_processes_at_once(tmp_path):
    """Each writes and reads objects of all: never a wrong one, and the bound holds at every look."""
    capacity, writing = 400_000, 4 * 32 * (50 + 120)
    looks = []
    with ExitStack() as running:
        workers = [
            running.enter_context(run("file_worker.py", tmp_path, capacity, number)) for number in range(4)
        ]
        while "done" in (told := json.loads(workers[0].stdout.readline() or "{}")):
            looks.append(look_at_one_moment(tmp_path, workers))
        seen = [told, *(result(worker) for worker in workers[1:])]
        assert workers[0].wait() == 0
    assert len(looks) == 10
    assert max(looks) <= capacity + writing
    assert all(one["wrong"] == 0 for one in seen), seen
    assert all(one["hits"] > 0 and one["put"] > 0 for one in seen), seen
    assert sum(one["others_hits"] for one in seen) > 0, "they must see what the others wrote"
    stored = stored_bytes(tmp_path)
    assert 0.5 * capacity < stored <= capacity + writing
    store = FileStore(tmp_path, capacity)
    assert store.swept_files == 0
    store.close()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.rule("B-8")
def test_the_temporary_files_of_the_living_are_left_alone(tmp_path):
    living = FileStore(tmp_path)
    scratch = Path(living._writable().scratch())
    scratch.write_bytes(b"half an object")
    (tmp_path / "tmp" / "0123-0").write_bytes(b"of a process whose lock is gone too")
    (tmp_path / "tmp" / f"4567{LOCK_SUFFIX}").touch()
    (tmp_path / "tmp" / "4567-8").write_bytes(b"of a process that died")
    other = FileStore(tmp_path)
    assert other.swept_files == 2
    assert scratch.exists()
    living.close()
    assert FileStore(tmp_path).swept_files == 1
