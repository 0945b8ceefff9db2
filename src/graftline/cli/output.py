"""What the command line prints: data to stdout, all else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


def data(text: str) -> None:
    """A line of data."""
    sys.stdout.write(text + "\n")


def json_data(value: Any) -> None:
    """A value as JSON."""
    data(json.dumps(value, indent=2, ensure_ascii=False))


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Rows in columns, plain, so that other programs can cut them."""
    lines = [tuple(str(cell) for cell in row) for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        data("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def note(text: str, *, end: str = "\n") -> None:
    """Something about the data, to stderr."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def human_bytes(count: int) -> str:
    """`1.5 GiB` and so on."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
