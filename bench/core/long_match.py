"""Match of a long cached prefix, held as one node or as many, against `memcmp` of the same bytes."""

from __future__ import annotations

import ctypes

from bench.core.load import random_tokens
from bench.core.shapes import NAMESPACE, Shape, SlotSource, grow, timed_us

from graftline.key import Tokens


def memcmp_us(tokens: Tokens, repeats: int = 400) -> float:
    """The floor: comparing the key with an equal one."""
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    other = tokens.copy()
    mine, theirs, size = tokens.ctypes.data, other.ctypes.data, tokens.nbytes
    return timed_us(lambda: libc.memcmp(mine, theirs, size), repeats)


def long_match(
    core_name: str, shape: Shape, page: int, tokens_count: int, nodes: int, repeats: int
) -> dict[str, object]:
    """Medians in µs: the match alone, and match, lease, reading the slots of all components, release."""
    core = shape.core(core_name, page)
    tokens = random_tokens(tokens_count, seed=3)
    grow(core, shape, SlotSource(), tokens, step=tokens_count // nodes)
    assert core.stats().nodes == nodes + 1
    key = tokens.copy()
    assert core.match(NAMESPACE, key).boundary_tokens == tokens_count

    def gather() -> None:
        lease = core.lease(core.match(NAMESPACE, key))
        assert [len(held.slots) for held in lease.held.values()]
        core.release(lease)

    return {
        "core": core_name,
        "shape": shape.name,
        "page_tokens": page,
        "nodes": nodes,
        "match_us": timed_us(lambda: core.match(NAMESPACE, key), repeats),
        "match_lease_slots_release_us": timed_us(gather, repeats),
        "memcmp_us": memcmp_us(tokens),
    }
