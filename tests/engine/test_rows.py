"""Slots of every type leave a pool as bytes and come back bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from runner_support import SERVED, make_runner

from graftline.engine.pools import ComponentPool, TensorSpec

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
TYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def filled(specs: dict[str, TensorSpec], slots: int, seed: int, device: str) -> ComponentPool:
    """A pool of random bytes."""
    pool = ComponentPool("any", slots, specs, device)
    generator = torch.Generator().manual_seed(seed)
    for tensor in pool.tensors.values():
        top = 2 if tensor.dtype is torch.bool else 256
        data = torch.randint(0, top, tensor.view(slots, -1).view(torch.uint8).shape, generator=generator)
        tensor.view(slots, -1).view(torch.uint8).copy_(data.to(torch.uint8))
    return pool


def content(pool: ComponentPool) -> dict[str, torch.Tensor]:
    return {
        name: tensor.view(pool.slots, -1).view(torch.uint8).cpu().clone()
        for name, tensor in pool.tensors.items()
    }


@pytest.mark.rule("H-1")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_row_is_the_bytes_of_all_tensors_in_the_order_of_the_layout(
    dtype: torch.dtype, device: str
) -> None:
    specs = {
        "1.value": TensorSpec((3, 2), dtype),
        "0.key": TensorSpec((5,), torch.bfloat16),
        "0.note": TensorSpec((), torch.int64),
    }
    pool, target = filled(specs, 9, 1, device), filled(specs, 12, 2, device)
    names = [part.split(":")[0] for part in pool.layout.split(";")]
    assert sorted(names) == sorted(specs)
    slots, places = np.array([7, 0, 3], np.int32), np.array([11, 2, 5], np.int32)
    rows = np.full((3, pool.slot_bytes), 77, np.uint8)
    pool.export_rows(slots, rows)
    before, mine = content(target), content(pool)
    for row, slot in zip(rows, slots, strict=True):
        assert row.tobytes() == b"".join(mine[name][slot].numpy().tobytes() for name in names)
    target.import_rows(places, rows)
    after = content(target)
    for name in names:
        assert torch.equal(after[name][places.tolist()], mine[name][slots.tolist()])
        others = [slot for slot in range(12) if slot not in places]
        assert torch.equal(after[name][others], before[name][others])


@pytest.mark.rule("H-10")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tensor_by_tensor_the_same_bytes_come(dtype: torch.dtype, device: str) -> None:
    """Each part fills its own tensor and no other; all parts together are a row."""
    specs = {f"{layer}.key": TensorSpec((3, layer + 1), dtype) for layer in (0, 2, 10)}
    pool, target = filled(specs, 9, 1, device), filled(specs, 9, 2, device)
    slots = np.array([7, 0, 3], np.int32)
    rows = np.empty((3, pool.slot_bytes), np.uint8)
    pool.export_rows(slots, rows)
    assert {part.tensor: part.layer for part in pool.parts} == {"0.key": 0, "2.key": 2, "10.key": 10}
    target.settle()
    for part in target.parts:
        before, mine = content(target), content(pool)
        target.import_part(slots, rows[:, part.columns], part)
        after = content(target)
        assert torch.equal(after[part.tensor][slots.tolist()], mine[part.tensor][slots.tolist()])
        assert all(torch.equal(after[name], before[name]) for name in specs if name != part.tensor)
    again = np.empty_like(rows)
    target.export_rows(slots, again)
    assert np.array_equal(again, rows)


@pytest.mark.rule("H-1")
@pytest.mark.parametrize("device", DEVICES)
def test_more_rows_than_one_batch(device: str) -> None:
    specs = {"0.a": TensorSpec((1 << 20,), torch.float32), "1.b": TensorSpec((3,), torch.bfloat16)}
    pool, target = filled(specs, 11, 1, device), filled(specs, 11, 2, device)
    slots = np.random.default_rng(1).permutation(11).astype(np.int32)
    rows = np.empty((11, pool.slot_bytes), np.uint8)
    pool.export_rows(slots, rows)
    target.import_rows(slots, rows)
    mine, theirs = content(pool), content(target)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.rule("H-1")
@pytest.mark.parametrize("family", SERVED)
def test_pools_of_every_family(family: str) -> None:
    runner, _ = make_runner(family, 4)
    for pool in runner.pools.values():
        specs = {name: TensorSpec(tuple(t.shape[1:]), t.dtype) for name, t in pool.tensors.items()}
        source, target = filled(specs, 6, 1, "cpu"), filled(specs, 6, 2, "cpu")
        assert source.layout == pool.layout
        rows = np.empty((6, pool.slot_bytes), np.uint8)
        source.export_rows(np.arange(6, dtype=np.int32), rows)
        target.import_rows(np.arange(6, dtype=np.int32), rows)
        assert all(torch.equal(content(source)[name], content(target)[name]) for name in specs)
