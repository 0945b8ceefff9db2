"""One eviction of one page, in trees of more and more nodes."""

from __future__ import annotations

import numpy as np
from bench.core.load import random_tokens
from bench.core.shapes import NAMESPACE, Shape, SlotSource, grow, median_us, now_ns

LEAF_PAGES = 4
SHARED_PAGES = 8


def eviction(core_name: str, shape: Shape, page: int, leaves: int, repeats: int) -> dict[str, object]:
    """Median and mean µs of evicting one page; all leaves hang on one shared prompt."""
    core, slots = shape.core(core_name, page), SlotSource()
    shared = random_tokens(SHARED_PAGES * page, seed=5)
    grow(core, shape, slots, shared)
    tails = random_tokens(leaves * LEAF_PAGES * page, seed=6).reshape(leaves, -1)
    tails[:, 0] = np.arange(leaves)
    lease = core.lease(core.match(NAMESPACE, shared))
    for tail in tails:
        values = slots.values(shape, SHARED_PAGES, SHARED_PAGES + LEAF_PAGES, page)
        core.insert(lease, tail, values)
    core.release(lease)
    samples = []
    for _ in range(repeats):
        began = now_ns()
        freed = core.evict("full", 1)
        samples.append(now_ns() - began)
        assert freed.count("full") == 1
    return {
        "core": core_name,
        "shape": shape.name,
        "page_tokens": page,
        "nodes": leaves + 1,
        "evict_us": median_us(samples),
        "evict_mean_us": round(sum(samples) / len(samples) / 1e3, 2),
    }
