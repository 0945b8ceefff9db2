"""The checks of `scripts/` find what they look for; a check that cannot fail would be none."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_rules_without_a_test_and_tests_without_a_rule_are_found(tmp_path: Path) -> None:
    page = write(
        tmp_path / "docs" / "design.md", "# D\n\n- **A-1** One.\n- **A-2** Two, see **A-3**.\n- **A-4** x\n"
    )
    write(
        tmp_path / "tests" / "test_x.py",
        "import pytest\npytestmark = pytest.mark.rule('A-4')\n"
        "@pytest.mark.rule('A-1', 'A-3')\ndef test_one(): ...\n"
        "@pytest.mark.rule('A-2')\ndef helper(): ...\n",
    )
    assert list(script("check_rules").faults(page, tmp_path / "tests")) == [
        "tests/test_x.py:3: there is no rule A-3",
        "docs/design.md:4: no test names rule A-2",
    ]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (
            "src/a.py",
            "def f():\n" + "    x = 1\n" * 70,
            ["src/a.py:1: function f has 71 lines, 70 are allowed"],
        ),
        ("src/a.py", "def f():\n" + "    x = 1\n" * 69, []),
        ("src/a.py", "x = 1\n" * 501, ["src/a.py:501: file has 501 lines, 500 are allowed"]),
        (
            "src/a.py",
            "class A:\n" + "    x = 1\n" * 300,
            ["src/a.py:1: class A has 301 lines, 300 are allowed"],
        ),
        ("src/graftline/tree/a.py", '"""The full tree."""\nx = y["swa"]\n', ["2: names the component 'swa'"]),
        ("src/graftline/engine/a.py", 'x = "swa"\n', []),
        ("tests/a.py", "x = 1\n" * 501, []),
        (
            "crates/c/a.rs",
            "impl A {\n    pub(crate) fn f<'a>(x: &'a [u8; 4]) -> char {\n"
            + "        x;\n" * 69
            + "        '{'\n    }\n}\n",
            ["crates/c/a.rs:2: function f has 72 lines, 70 are allowed"],
        ),
        (
            "crates/c/a.rs",
            "trait T {\n    fn f();\n}\nfn g() {\n    // }\n" + "    x;\n" * 60 + '    "}";\n}\n',
            [],
        ),
    ],
)
def test_sizes_and_names_over_the_limit_are_found(
    tmp_path: Path, path: str, text: str, found: list[str]
) -> None:
    write(tmp_path / path, text)
    told = list(script("check_sizes").faults(tmp_path))
    assert len(told) == len(found)
    assert all(line.endswith(end) for line, end in zip(told, found, strict=True))
