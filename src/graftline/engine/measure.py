"""How fast this machine computes and copies, measured once at start; when loading pays follows (rule H-6)."""

from __future__ import annotations

import numpy as np

from graftline.engine.layouts import STATE
from graftline.engine.pools import ComponentPool
from graftline.engine.probe import probe_row, probe_tokens
from graftline.engine.runner import Runner
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.worth import BreakEven, fastest, time_store

COPY_BYTES = 8 * 2**20
"""About as much as one step of a copy moves."""


def measure(runner: Runner, chunk_tokens: int, chain: ChainStore | None = None) -> BreakEven:
    """Times a chunk of a prompt, copies from host memory to the device, and reads from the stores.

    Nothing may be cached yet: the first slots of every pool are written to, and zeroed again. Stores that are
    down now are measured when they answer.
    """
    prefill_s_per_token = time_prefill(runner, chunk_tokens)
    copy_s = copy_bytes = latency_s = 0.0
    for pool in runner.pools.values():
        count = max(1, min(pool.slots, COPY_BYTES // pool.slot_bytes))
        copy_s += time_copy(pool, count)
        copy_bytes += count * pool.slot_bytes
        latency_s += time_copy(pool, 1)
    for pool in runner.pools.values():
        for tensor in pool.tensors.values():
            tensor.zero_()
    worth = BreakEven(prefill_s_per_token, copy_s / copy_bytes, latency_s)
    return worth if chain is None else worth.with_store(time_store(chain))


def time_prefill(runner: Runner, chunk_tokens: int) -> float:
    """Seconds a token, of one chunk of one prompt alone."""
    page = runner.page_tokens
    paged = [pool.slots * page for name, pool in runner.pools.items() if name != STATE]
    count = min([chunk_tokens, runner.layout.max_model_tokens or chunk_tokens, *paged])
    row = probe_row(probe_tokens(runner.vocab_size, count), 0, runner.layout, -(-count // page))
    return fastest(lambda: runner.step([row]).cpu()) / count


def time_copy(pool: ComponentPool, count: int) -> float:
    """Seconds to bring `count` slots of a pool up from host memory."""
    slots, rows = np.arange(count, dtype=np.int32), np.ones((count, pool.slot_bytes), np.uint8)
    return fastest(lambda: pool.import_rows(slots, rows))
