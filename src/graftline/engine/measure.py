"""How fast this machine computes and copies, measured once at start; when loading pays follows (rule H-6)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import numpy as np

from graftline.engine.layouts import STATE
from graftline.engine.pools import ComponentPool
from graftline.engine.probe import probe_row, probe_tokens
from graftline.engine.runner import Runner
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.worth import BreakEven

RUNS = 3
COPY_BYTES = 8 * 2**20
"""About as much as one step of a copy moves."""
SMALL_BYTES, LARGE_BYTES = 1024, 2**20


def measure(runner: Runner, chunk_tokens: int, chain: ChainStore | None = None) -> BreakEven:
    """Times a chunk of a prompt, copies from host memory to the device, and reads from the stores.

    Nothing may be cached yet: the first slots of every pool are written to, and zeroed again.
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
    return BreakEven(prefill_s_per_token, copy_s / copy_bytes, latency_s, *time_store(chain))


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


def time_store(chain: ChainStore | None) -> tuple[float, float]:
    """Seconds a byte, and seconds of a read of next to nothing; zeros when no store answers."""
    if chain is None:
        return 0.0, 0.0
    keys = [secrets.token_bytes(32), secrets.token_bytes(32)]
    values = [secrets.token_bytes(SMALL_BYTES), secrets.token_bytes(LARGE_BYTES)]
    try:
        if not all(chain.put(keys, values)):
            return 0.0, 0.0
        small_s, large_s = (
            fastest(lambda i=i: chain.get_checked([keys[i]], [len(values[i])], lambda *_: ""))  # type: ignore[misc]
            for i in range(2)
        )
        chain.remove(keys)
    except StoreError:
        return 0.0, 0.0
    return max(0.0, large_s - small_s) / (LARGE_BYTES - SMALL_BYTES), small_s


def fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs, after one that warms up."""
    run()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)
