"""Matches beside the owner, each compared with the states between the owner's operations."""

from __future__ import annotations

import pytest
from bench.core.readers import verify


@pytest.mark.rule("D-3")
@pytest.mark.parametrize("readers", [1, 3])
def test_each_match_equals_a_state_between_two_operations(readers: int) -> None:
    assert verify(readers, operations=400, text_tokens=4096) >= readers * 8
