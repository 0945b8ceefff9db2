"""A long conversation: each turn matches, leases, inserts 512 new tokens and releases.

`turn` is those four calls. `engine turn` is what an engine does: it also reads the slots of the prefix, moves
the lease to the end of the turn, and reads the slots there.
"""

from __future__ import annotations

import gc

from bench.core.load import random_tokens
from bench.core.shapes import NAMESPACE, Shape, SlotSource, median_us, now_ns

PARTS = ("match", "lease", "insert", "release")


def conversation(core_name: str, shape: Shape, page: int, turns: int, step: int) -> dict[str, object]:
    """Medians in µs, over all turns and over the last eighth of them."""
    plain = run(core_name, shape, page, turns, step, as_engine=False)
    engine = run(core_name, shape, page, turns, step, as_engine=True)
    late = turns - turns // 8
    turn = [sum(parts) for parts in zip(*plain.values(), strict=True)]
    engine_turn = [sum(parts) for parts in zip(*engine.values(), strict=True)]
    return {
        "core": core_name,
        "shape": shape.name,
        "page_tokens": page,
        "turn_us": median_us(turn),
        "turn_late_us": median_us(turn[late:]),
        "engine_turn_us": median_us(engine_turn),
        "engine_turn_late_us": median_us(engine_turn[late:]),
        "parts_late_us": {name: median_us(samples[late:]) for name, samples in plain.items()},
    }


def run(
    core_name: str, shape: Shape, page: int, turns: int, step: int, *, as_engine: bool
) -> dict[str, list[int]]:
    core, slots = shape.core(core_name, page), SlotSource()
    tokens = random_tokens(turns * step, seed=0)
    samples: dict[str, list[int]] = {name: [] for name in PARTS}
    gc.collect()
    for turn in range(turns):
        start, end = turn * step, (turn + 1) * step
        key, new = tokens[:end], tokens[start:end]
        values = slots.values(shape, start // page, end // page, page)
        t0 = now_ns()
        found = core.match(NAMESPACE, key)
        t1 = now_ns()
        lease = core.lease(found)
        if as_engine:
            assert [len(held.slots) for held in lease.held.values()]
        t2 = now_ns()
        done = core.insert(lease, new, values, move_lease=as_engine)
        if as_engine:
            assert [len(held.slots) for held in done.lease.held.values()]
        t3 = now_ns()
        core.release(done.lease)
        t4 = now_ns()
        assert found.boundary_tokens == start
        for name, spent in zip(PARTS, (t1 - t0, t2 - t1, t3 - t2, t4 - t3), strict=True):
            samples[name].append(spent)
    core.check()
    return samples
