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


Make = Callable[..., Sketch]


def maker(core_type: Callable[..., TreeCore]) -> Make:
    """Makes trees to draw on: `sketch(full=Full(), swa=Window(2), page_tokens=1)`."""

    def make(
        page_tokens: int = 1,
        policy: EvictionPolicy | str | None = None,
        limits: dict[str, float] | None = None,
        **rules: ReuseRule,
    ) -> Sketch:
        return Sketch(core_type, rules, page_tokens, policy, **(limits or {}))

    return make


@pytest.fixture
def sketch(core_type: Callable[..., TreeCore]) -> Make:
    """Makes trees on every core."""
    return maker(core_type)


@pytest.fixture(params=core_types(own=True), ids=lambda core_type: core_type.name)
def own_sketch(request: pytest.FixtureRequest) -> Make:
    """Makes trees on the cores that take rules and policies of one's own."""
    return maker(request.param)
