"""Each test of the tree's rules runs on each core."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differential.compositions import core_types
from graftline.components import ReuseRule
from graftline.policies import EvictionPolicy
from graftline.tree import TreeCore
from spec.sketch import Sketch


@pytest.fixture(params=core_types(), ids=lambda core_type: core_type.name)
def core_type(request: pytest.FixtureRequest) -> Callable[..., TreeCore]:
    """Class of a tree core."""
    return request.param


@pytest.fixture
def sketch(core_type: Callable[..., TreeCore]) -> Callable[..., Sketch]:
    """Makes a tree to draw on: `sketch(full=Full(), swa=Window(2), page_tokens=1)`."""

    def make(page_tokens: int = 1, policy: EvictionPolicy | None = None, **rules: ReuseRule) -> Sketch:
        return Sketch(core_type, rules, page_tokens, policy)

    return make
