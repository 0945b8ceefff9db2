"""The examples of the README and the guides run as they stand there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


@pytest.mark.rule("R-8")
def test_own_component_of_the_guide_votes_and_reuses(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("docs/guide/own-component.md")
    exec(compile(code, "own-component.md", "exec"), {"__name__": "guide"})
    out = capsys.readouterr().out
    assert out.startswith("960 ")
    assert "component='local'" in out


def test_library_example_of_the_readme_reuses(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(block for block in blocks("README.md") if "PrefixCache" in block)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert "reused 96 of 100" in capsys.readouterr().out
