"""Lines of a trace file, plain or gzipped, and the fields of one line; faults name file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from graftline.errors import GraftlineError
from graftline.replay.requests import NO_IDS, Ids

GZIP_MAGIC = b"\x1f\x8b"
OWN_IDS = 1 << 32
"""Conversations with ids of their own have this many each."""
INTERNED = 1 << 48
"""Ids that are no small numbers are given numbers from here on, in the order in which they are met."""


class TraceError(GraftlineError, ValueError):
    """A trace that cannot be read.

    Args:
        path: the file.
        line: number of the line, from 1; 0 when it is the file as a whole.
        message: what is wrong.
    """

    def __init__(self, path: Path, line: int, message: str, *, hint: str = "") -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}", hint=hint)
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True)
class Line:
    """One JSON object of a trace, and where it stands."""

    path: Path
    number: int
    fields: dict[str, Any]

    def fault(self, message: str, *, hint: str = "") -> TraceError:
        """An error about this line."""
        return TraceError(self.path, self.number, message, hint=hint)

    def within(self, fields: Any) -> Line:
        """An object inside this line."""
        if not isinstance(fields, dict):
            raise self.fault(f"{str(fields)[:40]!r} is no JSON object")
        return Line(self.path, self.number, fields)

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number that is not negative."""
        value = self.fields.get(name, default)
        if value is None:
            raise self.fault(f"field '{name}' is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.fault(f"field '{name}' is {value!r}, not a count")
        return value

    def seconds(self, name: str, *, unit_s: float, default: float | None = 0.0) -> float | None:
        """A point or span of time, given in units of `unit_s` seconds."""
        value = self.fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(f"field '{name}' is {value!r}, not a time")
        return float(value) * unit_s

    def text(self, name: str, default: str = "") -> str:
        """A name; numbers count as names."""
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.fault(f"field '{name}' is {str(value)[:40]!r}, not a name")
        return str(value)

    def items(self, name: str) -> list[Any]:
        """A list; empty when the field is missing."""
        value = self.fields.get(name, [])
        if not isinstance(value, list):
            raise self.fault(f"field '{name}' is {str(value)[:40]!r}, not a list")
        return value


def read_lines(path: Path) -> Iterator[Line]:
    """The JSON objects of a file, one a line; empty lines are left out.

    Raises:
        TraceError: no such file, broken compression, or a line that is no JSON object.
    """
    number = 0
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == GZIP_MAGIC
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            for number, data in enumerate(file, 1):
                if data.strip():
                    yield _line(path, number, data)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(path, number, f"cannot be read: {error}") from error


def _line(path: Path, number: int, data: bytes) -> Line:
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise TraceError(path, number, f"is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise TraceError(path, number, "is no JSON object", hint="a trace has one JSON object a line")
    return Line(path, number, fields)


class IdTable:
    """Makes u64 ids of whatever a trace names its blocks by: numbers, or strings."""

    def __init__(self) -> None:
        self._numbers: dict[int | str, int] = {}

    def ids(self, line: Line, name: str) -> Ids:
        """A list of block ids; small numbers stay what they are."""
        values = line.items(name)
        if not values:
            return NO_IDS
        if all(type(value) is int and 0 <= value < INTERNED for value in values):
            return np.array(values, dtype=np.uint64)
        if not all(type(value) in (int, str) for value in values):
            raise line.fault(f"field '{name}' has ids that are neither numbers nor strings")
        table = self._numbers
        return np.array([table.setdefault(value, INTERNED + len(table)) for value in values], dtype=np.uint64)


def id_runs(line: Line, name: str, base: int = 0) -> Ids:
    """Ids written as `[[first, count], ...]`, each plus `base`."""
    runs = line.items(name)
    if not runs:
        return NO_IDS
    try:
        table = np.array(runs, dtype=np.int64)
    except (ValueError, TypeError, OverflowError) as error:
        raise line.fault(f"field '{name}' is not a list of [first, count]") from error
    if table.ndim != 2 or table.shape[1] != 2 or table.min() < 0 or table[:, 0].max() >= INTERNED:
        raise line.fault(f"field '{name}' is not a list of [first, count] with small numbers")
    if base and table[:, 0].max() + table[:, 1].sum() >= OWN_IDS:
        raise line.fault(
            f"field '{name}' has ids above {OWN_IDS - 1}, which are kept for other conversations"
        )
    firsts, counts = table[:, 0] + base, table[:, 1]
    starts = np.cumsum(counts) - counts
    places = np.arange(int(counts.sum()), dtype=np.int64)
    ids: Ids = (places + np.repeat(firsts - starts, counts)).astype(np.uint64)
    return ids


def moment_s(line: Line, *names: str) -> float:
    """A point in time under the first of some names that is there: seconds, milliseconds or ISO 8601."""
    for name in names:
        value = line.fields.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value).timestamp()
            except ValueError as error:
                raise line.fault(f"field '{name}' is {value!r}, not a time in ISO 8601") from error
        seconds = line.seconds(name, unit_s=1.0) or 0.0
        return seconds / 1000 if seconds > 1e11 else seconds  # in seconds, 1e11 lies in the year 5138
    return 0.0
