"""Drives whole engines in the tests of this folder, and tells what the library alone would have answered."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from runner_support import BOUND, SERVED, library_model, poison

from graftline.engine import EngineConfig, HybridEngine, start_engine
from graftline.engine.api import GenerationRequest, ReuseReport, SamplingParams, TokenEvent
from graftline.engine.layouts import ModelLayout, plan_layout
from graftline.key import Namespace
from graftline.plan import Slots
from graftline.zoo import build_config, build_model, describe

ROOMY = {"full": 1200, "swa": 1200, "chunk": 1200, "state": 160}
CORE = "rust"  # which the fixture `core` changes
PATIENCE_S = 300  # a stuck engine shows as `queue.Empty`
Prompt = Sequence[int]


@cache
def layout_of(family: str) -> ModelLayout:
    return plan_layout(build_config(family))


@cache
def one_of_each_composition() -> list[str]:
    """The first served family of each mix of components."""
    found: dict[str, str] = {}
    for family in SERVED:
        found.setdefault(describe(family).composition, family)
    return list(found.values())


def random_prompt(seed: int, length: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 500, length).tolist()


def replay_boundary(prompt: Prompt, page_tokens: int) -> int:
    """Where an exact repeat must hit: all but the last page or less (rule M-3)."""
    return (len(prompt) - 1) // page_tokens * page_tokens


@cache
def _plain(
    family: str, prompts: tuple[tuple[int, ...], ...], count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.tensor(prompts)
    logits = []
    with torch.no_grad():
        for _ in range(count):
            logits.append(library_model(family)(rows, use_cache=False).logits[:, -1].float())
            rows = torch.cat([rows, logits[-1].argmax(-1, keepdim=True)], dim=1)
    return rows[:, len(prompts[0]) :], torch.stack(logits, dim=1)


def plain(family: str, prompts: Sequence[Prompt], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy tokens, (prompts, count), and logits, (prompts, count, vocab), of the library without any cache.

    Every token is chosen by a forward of the whole sequence so far. The prompts are of one length.
    """
    return _plain(family, tuple(tuple(int(token) for token in prompt) for prompt in prompts), count)


@dataclass
class Outcome:
    """What a caller got."""

    tokens: list[int]
    finish: str
    reuse: ReuseReport | None
    error: str
    events: list[TokenEvent]

    @property
    def reused(self) -> int:
        assert self.reuse is not None
        return self.reuse.reused_tokens


class Pending:
    """A request under way; called with its events."""

    def __init__(self, also: Callable[[TokenEvent], None] | None = None) -> None:
        self.ident = 0
        self._events: queue.Queue[TokenEvent] = queue.Queue()
        self._also = also

    def __call__(self, event: TokenEvent) -> None:
        self._events.put(event)
        if self._also is not None:
            self._also(event)

    def wait(self) -> Outcome:
        events = []
        while not events or events[-1].finish_reason is None:
            events.append(self._events.get(timeout=PATIENCE_S))
        reuse = next((event.reuse for event in events if event.reuse), None)
        tokens = [event.token for event in events if event.token is not None]
        return Outcome(tokens, str(events[-1].finish_reason), reuse, events[-1].error, events)

    def wait_for_token(self) -> TokenEvent:
        """The next event; to know that the request generates."""
        return self._events.get(timeout=PATIENCE_S)


@dataclass
class Client:
    """An engine and short ways to use it."""

    engine: HybridEngine
    ends: dict[int, torch.Tensor] = field(default_factory=dict)

    def submit(self, prompt: Prompt, count: int = 4, **more: Any) -> Pending:
        """Greedy unless `sampling` says otherwise."""
        also = more.pop("also", None)
        sampling = SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)
        request = GenerationRequest(np.array(prompt, np.uint32), more.pop("sampling", sampling), **more)
        pending = Pending(also)
        pending.ident = self.engine.submit(request, pending)
        return pending

    def ask(self, prompt: Prompt, count: int = 4, **more: Any) -> Outcome:
        """One request alone."""
        return self.submit(prompt, count, **more).wait()

    def ask_all(self, prompts: Sequence[Prompt], count: int = 4, **more: Any) -> list[Outcome]:
        """Requests that are all queued before the engine takes its next step."""
        with self.engine._changed:
            pending = [self.submit(prompt, count, **more) for prompt in prompts]
        return [request.wait() for request in pending]

    def record_logits(self) -> dict[int, torch.Tensor]:
        """From now on: logits by the number of tokens before them, for requests that run alone."""
        step = self.engine._runner.step

        def recording(rows: Sequence[Any]) -> torch.Tensor:
            logits = step(rows)
            for row, row_logits in zip(rows, logits, strict=True):
                self.ends[row.end] = row_logits.clone()
            return logits

        self.engine._runner.step = recording
        return self.ends

    def logits_of(self, prompt: Prompt, count: int = 4, **more: Any) -> torch.Tensor:
        """Logits from which each token was chosen, (count, vocab); `record_logits` must be on."""
        self.ends.clear()
        self.ask(prompt, count, **more)
        return torch.stack([self.ends[len(prompt) + i] for i in range(count)])

    def held(self, prompt: Prompt) -> Mapping[str, Slots]:
        """Slots that the deepest boundary of a prompt needs, by component."""
        with self.engine._changed:
            core = self.engine.cache.core
            lease = core.lease(core.match(self.namespace(), np.array(prompt, np.uint32)))
            core.release(lease)
        return {name: held.slots for name, held in lease.held.items()}

    def namespace(self) -> Namespace:
        return Namespace(self.engine._scheduler._model)

    def evict(self, component: str, slots: int) -> None:
        """What a full pool would do."""
        with self.engine._changed:
            self.engine.cache.settle(self.engine.cache.core.evict(component, slots))

    def assert_idle_and_whole(self) -> None:
        """No request is left, and every slot is free or the tree's (rules C-1, C-2)."""
        with self.engine._changed:
            self.engine.cache.check()
            for use in self.engine.cache.uses():
                assert (use.private, use.leased) == (0, 0), use
                assert use.free + use.held == use.capacity
        stats = self.engine.stats()
        assert (stats.running, stats.waiting) == (0, 0)


@contextmanager
def serving(family: str, *, dtype: torch.dtype = torch.float32, **config: Any) -> Iterator[Client]:
    """An engine whose pools are full of NaN, so that anything read before it was written shows."""
    page_tokens = config.pop("page_tokens", 4)
    config = {"core": CORE, **config}
    settings = {"chunk_tokens": 16, "max_batched_tokens": 64, "max_running": 8, "slots": ROOMY, **config}
    model = build_model(family, dtype=dtype)
    engine = start_engine(model, EngineConfig(page_tokens=page_tokens, device="cpu", **settings))
    poison(engine._runner)
    try:
        yield Client(engine)
    finally:
        engine.close()


def assert_greedy(family: str, prompts: Sequence[Prompt], outcomes: Sequence[Outcome], count: int) -> None:
    """The texts are those of the library without any cache (rule X-1).

    Two candidates closer than twice the bound of the logits are a tie, which rounding decides:
    there, and only there, either is right, and the rest of that text is not compared.
    """
    assert len(prompts) == len(outcomes)
    for outcome in outcomes:
        assert outcome.finish == "length", outcome
        assert len(outcome.tokens) == count
    expected, logits = plain(family, prompts, count)
    for row, outcome in enumerate(outcomes):
        for place, (mine, theirs) in enumerate(zip(outcome.tokens, expected[row].tolist(), strict=True)):
            if mine != theirs:
                choices = logits[row, place]
                gap = float((choices[theirs] - choices[mine]) / choices.std())
                where = f"token {place} of prompt {row} is {mine}, not {theirs}"
                assert gap < 2 * BOUND, f"{where}, which is likelier by {gap:.2g} of the spread"
                break


def patch_loads(client: Client, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Every copy to the device, whole or layer by layer, is `change(copy)` from now on."""
    for pool in client.engine.cache.pools.values():
        for copy in ("import_rows", "import_part"):
            monkeypatch.setattr(pool, copy, change(getattr(pool, copy)))


def break_loads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy to the device succeeds any more."""
    patch_loads(client, monkeypatch, lambda _: lambda *_: 1 / 0)
