"""Run by test_file_crash.py: kills a writing process 200 times, and looks at the folder after each.

    python kill_nine.py FOLDER KILLS

The writer tells each of its steps over a pipe: every system call that changes the folder, before and after,
large writes cut into pieces. The parent draws at which step it kills. Tells what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

from graftline.key import Namespace, page_keys
from graftline.tiers.store import objects
from graftline.tiers.store.file import FileStore

PAGE_TOKENS, SLOT_BYTES, VARIETY = 16, 100_000, 40
CAPACITY_BYTES = 12 * SLOT_BYTES
LAYOUT = objects.ObjectLayout("full", objects.layout_digest("rows", PAGE_TOKENS, 2), PAGE_TOKENS, SLOT_BYTES)
STEPS_MAX = 120  # of about 17 an object
PIECE_BYTES = 32 * 1024


def object_of(number: int) -> tuple[objects.ObjectPlace, np.ndarray]:
    """One or two pages of a path of their own, with values that follow from the number."""
    pages = 1 + number % 2
    tokens = np.arange(number, number + pages * PAGE_TOKENS, dtype=np.uint32)
    seed = Namespace(salt=str(number)).seed()
    keys = list(page_keys(seed, tokens, PAGE_TOKENS))
    rows = np.random.default_rng(number).integers(0, 256, (pages, SLOT_BYTES), dtype=np.uint8)
    return objects.Path(tokens, seed, keys, PAGE_TOKENS).place(0, pages), rows


def tell_steps(pipe: int) -> None:
    """Makes every call that changes the folder tell before and after."""
    write = os.write

    def told(call):
        def tell(*arguments, **named):
            write(pipe, b".")
            result = call(*arguments, **named)
            write(pipe, b".")
            return result

        return tell

    os.write = told(lambda fd, data: write(fd, memoryview(data)[:PIECE_BYTES]))
    for name in ("open", "rename", "replace", "unlink", "utime", "mkdir"):
        setattr(os, name, told(getattr(os, name)))


def write_until_killed(folder: Path, pipe: int, seed: int) -> None:
    draw = random.Random(seed)
    tell_steps(pipe)
    store = FileStore(folder, CAPACITY_BYTES)
    while True:
        numbers = draw.sample(range(VARIETY), 2)
        pairs = [object_of(number) for number in numbers]
        keys = [LAYOUT.key(place.chain_key) for place, _ in pairs]
        store.put(keys, [objects.encode(LAYOUT, place, rows) for place, rows in pairs])
        if draw.random() < 0.2:
            store.remove(keys[:1])


def kill_one(folder: Path, seed: int) -> None:
    """Starts a writer and kills it at a drawn step."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write_until_killed(folder, writing, seed)
        finally:
            os._exit(3)
    os.close(writing)
    left = random.Random(seed).randrange(1, STEPS_MAX)
    while left > 0:
        told = os.read(reading, left)
        if not told:
            break
        left -= len(told)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(reading)
    assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"


def look(folder: Path) -> dict[str, int]:
    """Opens the folder as the next process would."""
    files = [path for path in (folder / "objects").rglob("*") if path.is_file()]
    stored_bytes = sum(path.stat().st_size for path in files)
    left_behind = len([p for p in (folder / "tmp").iterdir() if not p.name.endswith(".lock")])
    store = FileStore(folder, CAPACITY_BYTES)
    assert store.swept_files == left_behind, (store.swept_files, left_behind)
    held = 0
    for number in range(VARIETY):
        place, rows = object_of(number)
        buffer = bytearray(LAYOUT.object_bytes(len(rows)))
        (filled,) = store.get_into([LAYOUT.key(place.chain_key)], [memoryview(buffer)])
        if filled:
            back = objects.decode(LAYOUT, place, memoryview(buffer)[:filled])
            assert np.array_equal(back, rows)
            held += 1
    assert held == len(files), (held, len(files))
    assert stored_bytes <= CAPACITY_BYTES, stored_bytes
    assert store.stat().stored_bytes >= stored_bytes
    store.close()
    assert list((folder / "tmp").iterdir()) == []
    others = [path.name for path in folder.iterdir() if path.name not in ("objects", "tmp", "usage", "lock")]
    assert others == []
    return {"held": held, "swept": left_behind, "usage_bytes": (folder / "usage").stat().st_size}


def main(folder: Path, kills: int) -> None:
    seen = []
    FileStore(folder, CAPACITY_BYTES).close()
    for seed in range(kills):
        kill_one(folder, seed)
        seen.append(look(folder))
    told = {
        "kills": len(seen),
        "rounds_with_leftovers": sum(one["swept"] > 0 for one in seen),
        "held_min": min(one["held"] for one in seen[kills // 2 :]),
        "held_max": max(one["held"] for one in seen),
        "usage_bytes_max": max(one["usage_bytes"] for one in seen),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
