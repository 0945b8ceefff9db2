"""Memory of a tree: what the process grows by, in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
from pathlib import Path

import numpy as np
from bench.core.load import random_tokens
from bench.core.shapes import SHAPES, SlotSource, grow


def resident_bytes() -> int:
    """Memory in use, after what is free was given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory(core_name: str, shape_name: str, page: int, node_tokens: int, nodes: int) -> dict[str, object]:
    """Bytes for each cached token and each node; token ids, slots and books together."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        grown = pool.apply(growth, (core_name, shape_name, page, node_tokens, nodes))
    return {
        "core": core_name,
        "shape": shape_name,
        "page_tokens": page,
        "node_tokens": node_tokens,
        "bytes_per_token": round(grown / (nodes * node_tokens), 2),
        "bytes_per_node": round(grown / nodes),
    }


def growth(core_name: str, shape_name: str, page: int, node_tokens: int, nodes: int) -> int:
    shape = next(shape for shape in SHAPES if shape.name == shape_name)
    core, slots = shape.core(core_name, page), SlotSource()
    conversation_nodes = 64
    grow(shape.core(core_name, page), shape, SlotSource(), random_tokens(4096, seed=0))  # loads what is lazy
    before = resident_bytes()
    for number in range(nodes // conversation_nodes):
        tokens = random_tokens(conversation_nodes * node_tokens, seed=number)
        tokens[0] = np.uint32(number)
        grow(core, shape, slots, tokens, step=node_tokens)
    after = resident_bytes()
    assert core.stats().nodes == nodes // conversation_nodes * conversation_nodes + 1
    return after - before
