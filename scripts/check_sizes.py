"""Checks sizes, and that the facade and the tree name no component.

A function may have 70 lines, a file 500, a class 300, in `src/` and `crates/`. No file of
`src/graftline/tree` or `src/graftline/cache` may contain the name of a component as a string: the tree
never asks which rule it has. Prints one line a fault, exits with 1 when there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FUNCTION_LINES, FILE_LINES, CLASS_LINES = 70, 500, 300
COMPONENT_NAMES = {"full", "swa", "mamba", "state"}
NEUTRAL_FOLDERS = ("src/graftline/tree", "src/graftline/cache")
NAMES_RULES = "src/graftline/tree/rust.py"  # its strings are kinds of rules, as the binding spells them

RUST_FUNCTION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|async\s+|unsafe\s+)*fn\s+(\w+)")
# What may hold a brace that is no block: comments, strings (raw ones too), characters.
RUST_NO_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|r(#*)\".*?\"\1|\"(?:\\.|[^\"\\])*\"|'(?:\\[^\n]{1,8}?|[^'\\\n])'", re.DOTALL
)


def python_faults(path: Path, place: str) -> Iterator[str]:
    """Functions and classes that are too long."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            limit, what = FUNCTION_LINES, "function"
        elif isinstance(node, ast.ClassDef):
            limit, what = CLASS_LINES, "class"
        else:
            continue
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > limit:
            yield f"{place}:{node.lineno}: {what} {node.name} has {lines} lines, {limit} are allowed"


def rust_faults(path: Path, place: str) -> Iterator[str]:
    """Functions that are too long, found by their braces."""
    text = RUST_NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = RUST_FUNCTION.match(line)
        if found is None:
            continue
        count = rust_function_lines(lines[number:])
        if count > FUNCTION_LINES:
            yield f"{place}:{number + 1}: function {found[1]} has {count} lines, {FUNCTION_LINES} are allowed"


def rust_function_lines(lines: list[str]) -> int:
    """Lines up to the brace that closes the function; 0 for a declaration without a body."""
    depth, opened = 0, False
    for count, line in enumerate(lines, 1):
        for sign in line:
            if sign == ";" and not opened and depth == 0:
                return 0
            depth += (sign in "{[(") - (sign in "}])")
            opened = opened or sign == "{"
        if opened and depth == 0:
            return count
    return 0


def name_faults(path: Path, place: str) -> Iterator[str]:
    """Strings that name a component; docstrings are longer than a name and may speak of them."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Constant) and node.value in COMPONENT_NAMES:
            yield f"{place}:{node.lineno}: names the component '{node.value}'"


def faults(root: Path) -> Iterator[str]:
    """One line a fault."""
    for folder in ("src", "crates"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".py", ".rs") or "target" in path.parts:
                continue
            place = path.relative_to(root).as_posix()
            lines = path.read_text().count("\n")
            if lines > FILE_LINES:
                yield f"{place}:{FILE_LINES + 1}: file has {lines} lines, {FILE_LINES} are allowed"
            yield from rust_faults(path, place) if path.suffix == ".rs" else python_faults(path, place)
            if path.suffix == ".py" and place.startswith(NEUTRAL_FOLDERS) and place != NAMES_RULES:
                yield from name_faults(path, place)


def main() -> int:
    """Prints the faults and returns the exit status."""
    found = list(faults(ROOT))
    print("\n".join(found) if found else "sizes are within their limits")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
