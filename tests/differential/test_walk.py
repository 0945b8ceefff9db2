"""Long walks: the machine's operations drawn by a seed, so that trees grow old; nothing is shrunk here."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from differential.compositions import COMPOSITIONS, Composition, core_types
from differential.harness import OPERATIONS, Harness, Pair
from differential.machine import PAGES_MAX, Machine

DEEP = os.environ.get("GRAFTLINE_PROFILE") == "deep"
SEEDS, STEPS = (20, 2000) if DEEP else (1, 250)
PAIRED = [composition for composition in COMPOSITIONS if not composition.own]
PAIRED_OPERATIONS = 2_000_000 if DEEP else 200_000  # in all, at least
OPERATIONS_A_TREE = 1000


def step(machine: Machine, chance: random.Random, pages_max_held: int = 40, leases_max: int = 6) -> None:
    """One operation, or two; leases come and go at the same pace, beyond the limits something must go."""
    pick, kinds = chance.randrange(32), chance.choices(range(3), k=chance.randint(0, 4))
    masks = [chance.randrange(2**PAGES_MAX) for _ in range(3)]
    flag, flags = chance.random() < 0.5, chance.random() < 0.1
    do = chance.randrange(16)
    if do < 3:
        machine.match(pick, chance.randrange(8), kinds, flag, chance.randrange(6), flags)
        machine.lease(chance.randrange(3))
    elif do == 3 and machine.matches:
        machine.claim(pick, chance.randrange(32), chance.randrange(8))
    elif do < 7 and machine.open:
        machine.insert(pick, chance.randrange(32), chance.randrange(8), kinds, flags, masks, masks[0], flag)
    elif do < 9 and len(machine.open) > 2:
        machine.release(pick)
    elif do == 9 and machine.open:
        machine.release_components(pick, masks[0])
    elif do == 10 and machine.open:
        machine.insert_wrongly(pick, kinds, chance.randrange(3), chance.randrange(5), flag)
    elif do == 11:
        machine.evict(chance.randrange(3), chance.randint(0, 4), False, chance.randrange(6))
    elif do == 12 and machine.open:
        machine.drop(pick, chance.randrange(3), chance.randrange(32), chance.randrange(8))
    else:
        session_step(machine, chance)
    while len(machine.open) > leases_max:
        machine.release(chance.randrange(32))
    if machine.harness.first.stats().path_pages > pages_max_held:
        machine.evict(chance.randrange(3), chance.randint(5, 15), False, 5)


def session_step(machine: Machine, chance: random.Random) -> None:
    """Sessions come back more often than they are forked or closed."""
    do = chance.randrange(12)
    if do < 4:
        machine.open_session(chance.randrange(5), chance.randrange(4), chance.choice((None, 0.0, 5.0, 60.0)))
    elif do < 8 and machine.open and machine.sessions:
        machine.register(chance.randrange(2), chance.randrange(32), chance.choice((None, 0, 3, 30)))
    elif do == 8:
        machine.fork_session(chance.randrange(5), chance.randrange(5))
    elif do == 9:
        machine.close_session(chance.randrange(5))
    else:
        machine.set_time(chance.choice((-3.0, 0.25, 7.0, 30.0)))


def started(composition: Composition, harness_type: type[Harness], policy: int) -> Machine:
    """A machine at its start."""

    class MachineOfComposition(Machine):
        pass

    MachineOfComposition.composition = composition
    MachineOfComposition.harness_type = harness_type
    machine = MachineOfComposition()
    machine.start(policy)
    return machine


@pytest.mark.rule("D-1", "D-2", "L-5")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_a_long_walk_keeps_every_core_with_the_oracle(
    composition: Composition, seed: int, record_property: Callable[[str, object], None]
) -> None:
    number = COMPOSITIONS.index(composition)
    chance = random.Random(f"{composition.name} {seed}")
    machine = started(composition, Harness, number + seed)
    for _ in range(STEPS):
        step(machine, chance)
    machine.teardown()
    record_property(OPERATIONS, machine.harness.operations)


@pytest.mark.skipif(len(core_types()) < 2, reason="the Rust core is not built")
@pytest.mark.rule("D-1", "D-2", "P-5")
@pytest.mark.parametrize("composition", PAIRED, ids=lambda composition: composition.name)
def test_a_longer_walk_keeps_the_fast_core_with_the_readable_one(
    composition: Composition, record_property: Callable[[str, object], None]
) -> None:
    """Without the oracle, which is slow: bigger trees, each order of eviction in turn."""
    operations, policy, chance = 0, 0, random.Random(composition.name)
    while operations * len(PAIRED) < PAIRED_OPERATIONS or policy < len(composition.policies):
        machine = started(composition, Pair, policy)
        while machine.harness.operations < OPERATIONS_A_TREE:
            step(machine, chance, pages_max_held=400, leases_max=20)
        machine.teardown()
        operations, policy = operations + machine.harness.operations, policy + 1
    record_property(OPERATIONS, operations)
