"""Many conversations over one shared prompt, in pools that are too small for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from bench.core.load import Load, session_texts
from bench.core.shapes import NAMESPACE, Shape, first_needed, now_ns, quantile_us

from graftline.components import Checkpoint, Window
from graftline.key import Tokens
from graftline.plan import Freed, Held
from graftline.tree import TreeCore

NAMES = ("match", "lease", "evict", "insert", "release")


@dataclass
class Figures:
    spent_ns: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in NAMES})
    asked_tokens: int = 0
    hit_tokens: int = 0
    asked_slots: int = 0
    freed_slots: int = 0
    evictions: int = 0


class Pools:
    """Free slots of every component."""

    def __init__(self, shape: Shape, load: Load, page: int) -> None:
        self.free = {
            name: list(range(pool_slots(rule, load, page) - 1, -1, -1)) for name, rule in shape.rules.items()
        }

    def take(self, name: str, count: int) -> np.ndarray:
        taken = self.free[name][-count:]
        assert len(taken) == count
        del self.free[name][-count:]
        return np.array(taken, dtype=np.int32)

    def settle(self, freed: Freed) -> None:
        for name, slots in freed.slots.items():
            self.free[name].extend(slots.tolist())


def pool_slots(rule: object, load: Load, page: int) -> int:
    """A state pool, a window's quarter of the capacity, or the whole of it."""
    if isinstance(rule, Checkpoint):
        return load.states
    if isinstance(rule, Window):
        return load.window_tokens(rule.lookback_tokens) // page
    return load.capacity_tokens // page


def sessions(core_name: str, shape: Shape, page: int, load: Load) -> dict[str, object]:
    """Turns a second in the core, slots freed for each asked, hit rate, slowest turns."""
    core, pools, figures = shape.core(core_name, page), Pools(shape, load, page), Figures()
    for tokens in session_texts(load):
        one_turn(core, shape, pools, tokens[: len(tokens) // page * page], figures)
    core.check()
    return report(core_name, shape, page, figures)


def one_turn(core: TreeCore, shape: Shape, pools: Pools, tokens: Tokens, figures: Figures) -> None:
    page, spent = core.page_tokens, figures.spent_ns
    t0 = now_ns()
    found = core.match(NAMESPACE, tokens)
    t1 = now_ns()
    lease = core.lease(found)
    t2 = now_ns()
    spent["match"].append(t1 - t0)
    spent["lease"].append(t2 - t1)
    start, end = lease.boundary_tokens // page, len(tokens) // page
    needs = {name: end - first_needed(rule, start, end, page) for name, rule in shape.rules.items()}
    evicting = 0
    for name, count in needs.items():
        short = count - len(pools.free[name])
        if short > 0:
            began = now_ns()
            freed = core.evict(name, short)
            evicting += now_ns() - began
            figures.evictions += 1
            figures.asked_slots += short
            figures.freed_slots += freed.count(name)
            pools.settle(freed)
    values = {name: [Held(end - count, pools.take(name, count))] for name, count in needs.items() if count}
    t3 = now_ns()
    done = core.insert(lease, tokens[start * page :], values)
    t4 = now_ns()
    core.release(done.lease)
    spent["release"].append(now_ns() - t4)
    spent["insert"].append(t4 - t3)
    spent["evict"].append(evicting)
    for name, runs in done.duplicates.items():
        pools.free[name].extend(slot for run in runs for slot in run.slots.tolist())
    figures.asked_tokens += len(tokens)
    figures.hit_tokens += lease.boundary_tokens


def report(core_name: str, shape: Shape, page: int, figures: Figures) -> dict[str, object]:
    spent = figures.spent_ns
    turns = [sum(parts) for parts in zip(*spent.values(), strict=True)]
    evictions = [sample for sample in spent["evict"] if sample]
    return {
        "core": core_name,
        "shape": shape.name,
        "page_tokens": page,
        "turns": len(turns),
        "turns_per_s": round(len(turns) / (sum(turns) / 1e9)),
        "ops_per_s": round((4 * len(turns) + figures.evictions) / (sum(turns) / 1e9)),
        "evict_share": round(sum(evictions) / sum(turns), 3),
        "evict_us": quantile_us(evictions, 0.5) if evictions else 0.0,
        "turn_p99_us": quantile_us(turns, 0.99),
        "freed_per_asked": round(figures.freed_slots / max(1, figures.asked_slots), 3),
        "hit_rate": round(figures.hit_tokens / figures.asked_tokens, 4),
    }
