"""The cells, measured on SGLang's cache. Runs in the rival's environment."""

from __future__ import annotations

import statistics
from importlib.metadata import version

import torch
from bench.core.load import Load, random_tokens, session_texts
from bench.rivals import cells
from bench.rivals.cells import Cell
from bench.rivals.sglang_cache import Rival, Sizes, key_of, now_ns

Figures = dict[str, float]
EVICTING_NS = 2_000_000_000  # enough samples of an eviction that takes long


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("sglang", "torch")}


def measure(cell: Cell, core: str) -> Figures:
    """One round of a cell."""
    return PARTS[cell.part](cell, core)


def conversation(cell: Cell, core: str) -> Figures:
    end = cell.count * cells.STEP_TOKENS
    rival = Rival(core, cell.shape, cell.page_tokens, Sizes(2 * end, 2 * end, cell.count + 8))
    key = key_of(random_tokens(end, seed=0))
    turns = []
    for start in range(0, end, cells.STEP_TOKENS):
        known, spent = key[: start + cells.STEP_TOKENS], 0
        began = now_ns()
        found = rival.match(known)
        lock = rival.cache.inc_lock_ref(found.last_device_node)
        spent += now_ns() - began
        assert found.device_prefix_len == start, found
        given = rival.give(known, rival.slots(found))
        began = now_ns()
        result = rival.cache.insert(given.params)
        rival.cache.dec_lock_ref(found.last_device_node, lock.to_dec_params())
        turns.append(spent + now_ns() - began)
        rival.settle(given, result)
    rival.cache.sanity_check()
    return {"turn_us": _median_us(turns), "turn_late_us": _median_us(turns[-cells.LATE_TURNS :])}


def long_match(cell: Cell, core: str) -> Figures:
    end = cells.MATCH_TOKENS
    rival = Rival(core, cell.shape, cell.page_tokens, Sizes(2 * end, 2 * end, cell.count + 8))
    key = key_of(random_tokens(end, seed=3))
    step = end // cell.count
    slots = torch.empty(0, dtype=torch.int64)
    for start in range(0, end, step):
        slots = rival.grow(key[: start + step], slots)
    samples = []
    for _ in range(cell.repeats):
        began = now_ns()
        found = rival.match(key)
        samples.append(now_ns() - began)
    assert found.device_prefix_len == end
    return {"match_us": _median_us(samples)}


def sessions(cell: Cell, core: str) -> Figures:
    load = Load(sessions=cell.count)
    window = load.window_tokens(cells.window_tokens(cell.shape) - 1)
    sizes = Sizes(load.capacity_tokens, window, load.states)
    rival = Rival(core, cell.shape, cell.page_tokens, sizes)
    turns, evictions = [], 0
    asked_tokens = hit_tokens = asked_slots = freed_slots = 0
    for text in session_texts(load):
        key = key_of(text[: len(text) // cell.page_tokens * cell.page_tokens])
        began = now_ns()
        found = rival.match(key)
        lock = rival.cache.inc_lock_ref(found.last_device_node)
        spent = now_ns() - began
        start = found.device_prefix_len
        short = rival.short(start, len(key))
        if any(short):
            before = rival.free()
            began = now_ns()
            rival.evict(short)
            spent += now_ns() - began
            gained = [now - then for now, then in zip(rival.free(), before, strict=True)]
            freed_slots += sum(gain for gain, wanted in zip(gained, short, strict=True) if wanted)
            asked_slots += sum(short)
            evictions += 1
        given = rival.give(key, rival.slots(found))
        began = now_ns()
        result = rival.cache.insert(given.params)
        rival.cache.dec_lock_ref(found.last_device_node, lock.to_dec_params())
        turns.append(spent + now_ns() - began)
        rival.settle(given, result)
        asked_tokens, hit_tokens = asked_tokens + len(key), hit_tokens + start
    rival.cache.sanity_check()
    seconds = sum(turns) / 1e9
    return {
        "turns_per_s": round(len(turns) / seconds),
        "ops_per_s": round((4 * len(turns) + evictions) / seconds),
        "turn_p99_us": round(sorted(turns)[int(0.99 * len(turns))] / 1e3, 1),
        "freed_per_asked": round(freed_slots / max(1, asked_slots), 3),
        "hit_rate": round(hit_tokens / asked_tokens, 4),
    }


def eviction(cell: Cell, core: str) -> Figures:
    page = cell.page_tokens
    leaf, shared = cells.LEAF_PAGES * page, cells.SHARED_PAGES * page
    capacity = cell.count * leaf + 2 * shared
    rival = Rival(core, cell.shape, page, Sizes(capacity, capacity, cell.count + 8))
    prompt = key_of(random_tokens(shared, seed=5))
    before = rival.grow(prompt, torch.empty(0, dtype=torch.int64))
    tails = random_tokens(cell.count * leaf, seed=6).reshape(cell.count, -1)
    for number, tail in enumerate(tails):
        tail[0] = number
        rival.grow(prompt + key_of(tail), before)
    samples: list[int] = []
    free = rival.pool.full_available_size()
    while len(samples) < cell.repeats and sum(samples) < EVICTING_NS:
        began = now_ns()
        rival.evict((page, 0, 0))
        samples.append(now_ns() - began)
    freed = rival.pool.full_available_size() - free
    return {"evict_us": _median_us(samples), "freed_per_asked": round(freed / (len(samples) * page), 3)}


def _median_us(samples_ns: list[int]) -> float:
    return round(statistics.median(samples_ns) / 1e3, 2)


PARTS = {"conversation": conversation, "match": long_match, "sessions": sessions, "eviction": eviction}
