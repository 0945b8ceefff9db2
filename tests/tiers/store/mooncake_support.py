"""What the tests of Mooncake share: objects, one call of each operation, clients in their own processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graftline.tiers.store.base import StoreError
from tiers.store.conformance import content, key, read

SIZE = 200_000
KEYS = [key(i) for i in range(24)]
VALUES = [content(i, SIZE) for i in range(24)]


def reason_of(call) -> str:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


def calls(store):
    """One call of each operation."""
    return {
        "exists": lambda: store.exists(KEYS),
        "get_into": lambda: read(store, KEYS, SIZE),
        "put": lambda: store.put(KEYS, VALUES),
        "remove": lambda: store.remove(KEYS),
        "clear": store.clear,
    }


def right_or_missing(got: list[bytes]) -> int:
    """How many objects came back; each that did is the right one."""
    assert all(data in (b"", value) for data, value in zip(got, VALUES, strict=True))
    return sum(1 for data in got if data)


def put_one(store, name: bytes, value: bytes) -> bool:
    """Whether there was room."""
    try:
        return store.put([name], [value])[0]
    except StoreError as error:
        if error.reason != "full":
            raise
        return False


def answers(store) -> bool:
    try:
        store.exists(KEYS)
    except StoreError:
        return False
    return True


HEAD = """
import sys
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.mooncake import open_mooncake
from tiers.store.conformance import content, key, read

def told(what):
    print(what, flush=True)

store = open_mooncake(sys.argv[1])
keys, values = [key(i) for i in range(24)], [content(i, 200_000) for i in range(24)]
"""


@contextmanager
def talking_to(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A client in a process of its own; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def answer_of(process: subprocess.Popen[str], word: str = "") -> str:
    """What it says next, after a word to it."""
    if word:
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
    return process.stdout.readline().strip()
