"""Run by test_file_crash.py: one of several processes on one folder. Tells what it saw, a line of JSON each.

python file_worker.py FOLDER CAPACITY_BYTES NUMBER
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path

from graftline.tiers.store.base import StoreError
from graftline.tiers.store.file import FileStore

ROUNDS, VARIETY = 400, 120


def object_of(owner: int, number: int) -> tuple[bytes, bytes]:
    name = hashlib.sha256(f"{owner}/{number}".encode()).digest()
    return name, name * (50 + number)


def main(folder: Path, capacity_bytes: int, own: int) -> None:
    draw = random.Random(own)
    store = FileStore(folder, capacity_bytes)
    seen = dict.fromkeys(("put", "full", "hits", "others_hits", "wrong"), 0)
    for done in range(ROUNDS):
        key, value = object_of(own, draw.randrange(VARIETY))
        try:
            seen["put"] += store.put([key], [value])[0]
        except StoreError as error:
            seen[error.reason] += 1
        owner = draw.randrange(4)
        key, value = object_of(owner, draw.randrange(VARIETY))
        buffer = bytearray(len(value))
        (filled,) = store.get_into([key], [memoryview(buffer)])
        seen["hits"] += filled > 0
        seen["others_hits"] += filled > 0 and owner != own
        seen["wrong"] += filled > 0 and buffer[:filled] != value
        if draw.random() < 0.05:
            store.remove([object_of(owner, draw.randrange(VARIETY))[0]])
        if done % 40 == 0:
            tell({"done": done})
    store.close()
    tell(seen)


def tell(what: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
