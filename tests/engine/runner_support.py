"""Drives a runner by hand: slots, tables, and the library's logits to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch

from graftline.engine.batch import Row
from graftline.engine.layouts import STATE, plan_layout
from graftline.engine.runner import Runner
from graftline.zoo import build_model, families

torch.set_num_threads(1)

REFUSED = ("rwkv", "xlstm")
SERVED = [family for family in families() if family not in REFUSED]
LENGTHS = (61, 47, 34)
SLOTS = 160
# Float32 sums depend on how a prompt is cut. Largest difference allowed, relative to the spread of the
# logits; the worst family is at 5e-5.
BOUND = 2e-4
# A control must differ by far more than that.
LARGE = 50 * BOUND


@dataclass
class Running:
    """One sequence under way: its tokens, its tables, its state slot."""

    tokens: np.ndarray
    tables: dict[str, np.ndarray]
    state_slot: int | None
    start: int = 0


@dataclass
class Pools:
    """Free slots of a runner, in random order."""

    runner: Runner
    generator: np.random.Generator
    free: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.free = {
            name: self.generator.permutation(pool.slots).tolist() for name, pool in self.runner.pools.items()
        }

    def take(self, name: str, count: int = 1) -> list[int]:
        return [self.free[name].pop() for _ in range(count)]

    def sequence(self, tokens: np.ndarray) -> Running:
        pages = -(-len(tokens) // self.runner.page_tokens)
        tables = {
            c.name: np.array(self.take(c.name, pages), dtype=np.int32)
            for c in self.runner.layout.components
            if c.name != STATE
        }
        return Running(tokens, tables, self.take(STATE)[0] if STATE in self.free else None)

    def fork(self, parent: Running, tokens: np.ndarray, boundary: int, saved: int | None) -> Running:
        """A sequence that shares the parent's pages before `boundary`, just those that the rules ask for."""
        child, page = self.sequence(tokens), self.runner.page_tokens
        pages = boundary // page
        for name, table in child.tables.items():
            first = self.runner.layout.component(name).rule.first_page(pages, page)
            table[:pages] = -1
            table[first:pages] = parent.tables[name][first:pages]
        if saved is not None:
            self.runner.pools[STATE].copy(saved, child.state_slot)
        child.start = boundary
        return child

    def save(self, sequence: Running) -> int | None:
        """A copy of the sequence's state in a slot of its own."""
        if sequence.state_slot is None:
            return None
        saved = self.take(STATE)[0]
        self.runner.pools[STATE].copy(sequence.state_slot, saved)
        return saved


def make_runner(
    family: str, page_tokens: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Runner, Pools]:
    """A runner whose pools are full of NaN, so that anything read before it was written shows."""
    model = build_model(family, seed=seed, dtype=dtype)
    layout = plan_layout(model.config)
    page_tokens = math.lcm(page_tokens, layout.page_multiple)
    slots = {component.name: SLOTS for component in layout.components}
    runner = Runner(model, layout, page_tokens=page_tokens, slots=slots, device="cpu")
    poison(runner)
    return runner, Pools(runner, np.random.default_rng(page_tokens))


def poison(runner: Runner) -> None:
    for pool in runner.pools.values():
        for tensor in pool.tensors.values():
            tensor.fill_(math.nan if tensor.is_floating_point() else 1)


def prompt(number: int, length: int) -> np.ndarray:
    return np.random.default_rng(number).integers(3, 500, length)


@cache
def library_model(family: str) -> torch.nn.Module:
    return build_model(family)


@cache
def reference(family: str, tokens: tuple[int, ...]) -> torch.Tensor:
    """Logits of one uncached forward of the whole sequence by the library, (n, vocab)."""
    with torch.no_grad():
        return library_model(family)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def advance(runner: Runner, parts: Sequence[tuple[Running, int]]) -> torch.Tensor:
    """One step with `n` more tokens of each sequence; logits of the last token of each."""
    rows = []
    for sequence, n in parts:
        tokens = sequence.tokens[sequence.start : sequence.start + n]
        rows.append(Row(tokens, sequence.start, sequence.tables, sequence.state_slot))
        sequence.start += n
    return runner.step(rows)


def advance_all(runner: Runner, sequence: Running, chunks: Sequence[int]) -> torch.Tensor:
    """Run the sequence in chunks; logits of every token."""
    parts = []
    for n in chunks:
        tokens = sequence.tokens[sequence.start : sequence.start + n]
        if len(tokens):
            parts.append(runner.step_all(Row(tokens, sequence.start, sequence.tables, sequence.state_slot)))
            sequence.start += len(tokens)
    return torch.cat(parts)


def difference(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference relative to the spread of the expected logits; NaN counts as infinite."""
    worst = float((logits - expected).abs().max() / expected.std())
    return math.inf if math.isnan(worst) else worst


def assert_equal(logits: torch.Tensor, expected: torch.Tensor) -> None:
    """Logits within the bound, and the same greedy tokens wherever the library's choice is no tie."""
    worst = difference(logits, expected)
    assert worst < BOUND, f"logits differ by {worst:.2g} of their spread"
    best = expected.topk(2, dim=-1).values
    clear = best[..., 0] - best[..., 1] > 2 * BOUND * expected.std()
    assert torch.equal(logits.argmax(-1)[clear], expected.argmax(-1)[clear])
