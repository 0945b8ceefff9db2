"""Long walks: the machine's operations drawn by a seed, so that trees grow old; nothing is shrunk here."""

from __future__ import annotations

import os
import random

import pytest

from differential.compositions import COMPOSITIONS, Composition
from differential.machine import PAGES_MAX, Machine

DEEP = os.environ.get("GRAFTLINE_PROFILE") == "deep"
SEEDS, STEPS = (20, 2000) if DEEP else (1, 250)
PAGES_MAX_HELD, LEASES_MAX = 40, 6  # the oracle is slow: beyond these something is evicted or released


def step(machine: Machine, chance: random.Random) -> None:
    """One operation; leases come and go at the same pace."""
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
    else:
        session_step(machine, chance)
    while len(machine.open) > LEASES_MAX:
        machine.release(chance.randrange(32))
    if machine.harness.oracle.stats().path_pages > PAGES_MAX_HELD:
        machine.evict(chance.randrange(3), chance.randint(5, 15), False, 5)


def session_step(machine: Machine, chance: random.Random) -> None:
    """Sessions come back more often than they are forked or closed."""
    do = chance.randrange(12)
    if do < 4:
        machine.open_session(chance.randrange(5), chance.randrange(4), chance.choice((None, 0.0, 5.0, 60.0)))
    elif do < 8 and machine.open and machine.sessions:
        machine.register(chance.randrange(2), chance.randrange(32))
    elif do == 8:
        machine.fork_session(chance.randrange(5), chance.randrange(5))
    elif do == 9:
        machine.close_session(chance.randrange(5))
    else:
        machine.set_time(chance.choice((-3.0, 0.25, 7.0, 30.0)))


@pytest.mark.rule("D-1", "D-2", "L-5")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_a_long_walk_keeps_every_core_with_the_oracle(composition: Composition, seed: int) -> None:
    class MachineOfComposition(Machine):
        pass

    MachineOfComposition.composition = composition
    machine, chance = MachineOfComposition(), random.Random(f"{composition.name} {seed}")
    machine.start(chance.randrange(32))
    for _ in range(STEPS):
        step(machine, chance)
    machine.teardown()
