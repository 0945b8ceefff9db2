"""The oracle and every core do the same, whatever happens: drawn operations on each composition."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from differential.compositions import COMPOSITIONS, Composition
from differential.machine import Machine


@pytest.mark.rule("D-1", "D-2")
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_every_core_does_as_the_oracle(composition: Composition) -> None:
    class MachineOfComposition(Machine):
        pass

    MachineOfComposition.composition = composition
    run_state_machine_as_test(MachineOfComposition)
