"""Checks that rules and tests name each other.

Every numbered rule of `docs/design.md` needs a test marked `@pytest.mark.rule("X-n")`, and a test may
name no rule that the page does not have. Prints one line a fault, exits with 1 when there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RULE = re.compile(r"^- \*\*([A-Z]-\d+)\*\*", re.MULTILINE)


def rules_of(text: str) -> dict[str, int]:
    """Rule to the line on which the page states it."""
    return {found[1]: text.count("\n", 0, found.start()) + 1 for found in RULE.finditer(text)}


def is_rule_mark(node: ast.AST) -> bool:
    """Whether a call is `pytest.mark.rule(...)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.rule"


def marks_of(tree: ast.Module) -> Iterator[ast.Call]:
    """Marks that pytest sees: decorators of tests and of their classes, and `pytestmark`."""
    for node in ast.walk(tree):
        places: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name.lower().startswith("test"):
                places = node.decorator_list
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            places = [node.value]
        for place in places:
            yield from (call for call in ast.walk(place) if isinstance(call, ast.Call) and is_rule_mark(call))


def faults(page: Path, tests: Path) -> Iterator[str]:
    """One line a fault."""
    rules = rules_of(page.read_text())
    tested: set[str] = set()
    for path in sorted(tests.rglob("*.py")):
        place = path.relative_to(tests.parent)
        for mark in marks_of(ast.parse(path.read_text(), str(path))):
            for argument in mark.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    yield f"{place}:{argument.lineno}: rule numbers are written out as strings"
                elif argument.value not in rules:
                    yield f"{place}:{argument.lineno}: there is no rule {argument.value}"
                else:
                    tested.add(argument.value)
    for rule, line in rules.items():
        if rule not in tested:
            yield f"{page.relative_to(tests.parent)}:{line}: no test names rule {rule}"


def main() -> int:
    """Prints the faults and returns the exit status."""
    found = list(faults(ROOT / "docs" / "design.md", ROOT / "tests"))
    print("\n".join(found) if found else "rules and tests name each other")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
