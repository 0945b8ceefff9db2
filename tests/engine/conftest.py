"""Engine tests run on both tree cores.

By default all of them run on the Rust core, and a share on the Python core as well: the stories of
`test_engine_families.py` once for each composition, and the first case of every other engine test.
`pytest tests/engine --core python` runs all of them on the Python core, `--core both` on both.
"""

from __future__ import annotations

from collections.abc import Iterator

import engine_support
import pytest

from graftline.zoo import describe

ON_A_CORE = "test_engine_"  # the other files of this folder have no tree
EACH_COMPOSITION = "test_engine_families"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.startswith(ON_A_CORE):
        chosen = metafunc.config.getoption("--core")
        cores = [chosen] if chosen in ("rust", "python") else ["rust", "python"]
        metafunc.parametrize("core", cores, indirect=True)


@pytest.fixture(autouse=True)
def core(request: pytest.FixtureRequest) -> Iterator[str]:
    """The core that `serving` gives its engines."""
    before = engine_support.CORE
    engine_support.CORE = getattr(request, "param", before)
    yield engine_support.CORE
    engine_support.CORE = before


@pytest.hookimpl(tryfirst=True)  # before the order is shuffled: the share is the same in every run
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--core") != "share":
        return
    seen: set[tuple[str, str]] = set()
    left_out = [item for item in items if _on_python(item) and not _first(item, seen)]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _on_python(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _parameters(item).get("core") == "python"


def _first(item: pytest.Item, seen: set[tuple[str, str]]) -> bool:
    """Whether no case of the same test (and composition, where that counts) came before."""
    family = _parameters(item).get("family")
    module, _, name = item.nodeid.partition("[")[0].rpartition("::")
    composition = describe(str(family)).composition if family and EACH_COMPOSITION in module else ""
    case = (f"{module}::{name}", composition)
    if case in seen:
        return False
    seen.add(case)
    return True


def _parameters(item: pytest.Item) -> dict[str, object]:
    spec = getattr(item, "callspec", None)
    return dict(spec.params) if spec else {}
