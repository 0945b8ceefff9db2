"""What a turn's time to first token is spent on, measured inside of an engine in this process.

The engine's code has no hooks: its methods are wrapped from here while one request runs. The library's own
forward of the same new tokens is timed beside it: less than that cannot be had from the model's code.
"""

from __future__ import annotations

import copy
import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils import logging as transformers_logging

from graftline.cache import CachedRequest
from graftline.engine import EngineConfig, HybridEngine, load_engine
from graftline.engine.api import GenerationRequest, SamplingParams, TokenEvent
from graftline.engine.batch import Row
from graftline.engine.sequence import Sequence as EngineSequence

PLAN, PREPARE, FORWARD, KEEP, SAMPLE = (
    "schedule, match, lease, slots",
    "tensors of the step",
    "forward of the new tokens",
    "insert, copy states, give back",
    "choose the token",
)
REPEATS = 5

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()


@dataclass(slots=True)
class Parts:
    """One request's time to first token, in seconds.

    Attributes:
        steps: tokens of the prompt that each step computed, from and to.
        forward_s: of each step.
        total_s: from submission to the first token's event.
        parts_s: by part; what is missing to the total is waiting for the engine's thread, and the rest
            of its loop.
        library_s: the library's own forward of the same tokens on its own cache, cut as the steps were.
        library_once_s: the same tokens at once.
    """

    steps: list[tuple[int, int]] = field(default_factory=list)
    forward_s: list[float] = field(default_factory=list)
    total_s: float = 0.0
    parts_s: dict[str, float] = field(default_factory=dict)
    library_s: list[float] = field(default_factory=list)
    library_once_s: float = 0.0


class Stopwatch:
    """Times wrapped calls; a call inside of another wrapped one counts for itself only."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = defaultdict(list)
        self._inner: list[float] = []

    def wrap(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                self.samples[part].append(took - self._inner.pop())
                if self._inner:
                    self._inner[-1] += took

        return timed


@contextmanager
def watched(engine: HybridEngine) -> Iterator[Stopwatch]:
    """Wraps the engine's methods, and puts them back."""
    watch = Stopwatch()
    runner = engine._runner
    places: list[tuple[Any, str, str]] = [
        (engine._scheduler, "plan", PLAN),
        (runner._state.planner, "plan", PREPARE),
        (runner, "_forward", FORWARD),
        (CachedRequest, "advance", KEEP),
        (EngineSequence, "choose", SAMPLE),
    ]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in places]
    for owner, name, part in places:
        setattr(owner, name, watch.wrap(part, getattr(owner, name)))
    try:
        yield watch
    finally:
        for owner, name, function in before:
            if function is None:
                delattr(owner, name)
            else:
                setattr(owner, name, function)


def breakdown(model: Path, prompts: Sequence[Sequence[int]], tokens: int) -> Parts:
    """Holds a conversation, and takes its last turn apart: the fastest of some repetitions.

    Args:
        model: folder of a model.
        prompts: of all turns, each with the answers before it; at least two.
        tokens: generated each turn.
    """
    engine = load_engine(str(model), EngineConfig(threads=1, max_model_tokens=8192))
    runs = []
    try:
        for _ in range(REPEATS):
            engine.clear_cache()
            for prompt in prompts[:-1]:
                first_token_s(engine, prompt, tokens)
            runs.append(watch_one(engine, prompts[-1]))
    finally:
        engine.close()
    best = min(runs, key=lambda parts: parts.total_s)
    library = Library(model, prompts[-1], best.steps[0][0])
    best.library_s = library.seconds(best.steps)
    best.library_once_s = library.seconds([(best.steps[0][0], len(prompts[-1]))])[0]
    return best


def watch_one(engine: HybridEngine, prompt: Sequence[int]) -> Parts:
    """One request for one token, taken apart."""
    steps: list[tuple[int, int]] = []
    step = engine._runner.step

    def noting(rows: Sequence[Row]) -> torch.Tensor:
        steps.extend((row.start, row.end) for row in rows)
        return step(rows)

    engine._runner.step = noting  # type: ignore[method-assign]
    try:
        with watched(engine) as watch:
            total_s = first_token_s(engine, prompt, 1)
    finally:
        engine._runner.step = step  # type: ignore[method-assign]
    return Parts(
        steps=steps,
        forward_s=watch.samples[FORWARD],
        total_s=total_s,
        parts_s={part: sum(watch.samples[part]) for part in (PLAN, PREPARE, FORWARD, KEEP, SAMPLE)},
    )


def first_token_s(engine: HybridEngine, prompt: Sequence[int], tokens: int) -> float:
    """Runs a request to its end; seconds to its first event."""
    events: list[float] = []
    done = threading.Event()

    def on_event(event: TokenEvent) -> None:
        events.append(time.perf_counter())
        if event.finish_reason:
            done.set()

    sampling = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
    start_s = time.perf_counter()
    engine.submit(GenerationRequest(np.asarray(prompt, dtype=np.uint32), sampling), on_event)
    done.wait()
    return events[0] - start_s


class Library:
    """The model as the library runs it, with a prompt's first tokens in the library's own cache."""

    def __init__(self, model: Path, prompt: Sequence[int], cached_tokens: int) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model).eval()
        self._ids = torch.tensor([list(prompt)])
        self._past = DynamicCache(config=self._model.config)
        if cached_tokens:
            self._forward(self._past, 0, cached_tokens)

    def seconds(self, steps: Sequence[tuple[int, int]]) -> list[float]:
        """Of the forward of each step, one after the other; the fastest of some repetitions."""
        runs = []
        for _ in range(REPEATS):
            past = copy.deepcopy(self._past)
            runs.append([self._forward(past, start, end) for start, end in steps])
        return [min(times) for times in zip(*runs, strict=True)]

    def _forward(self, past: DynamicCache, start: int, end: int) -> float:
        start_s = time.perf_counter()
        with torch.no_grad():
            self._model(self._ids[:, start:end], past_key_values=past, use_cache=True, logits_to_keep=1)
        return time.perf_counter() - start_s


def parts_table(
    family: str, parts: Parts, http_s: float
) -> tuple[str, tuple[str, ...], list[tuple[Any, ...]]]:
    """Title, columns and rows for `show`.

    Args:
        family: for the title.
        parts: of the last turn.
        http_s: what the engine has no part in.
    """
    whole = parts.total_s + http_s
    rest = parts.total_s - sum(parts.parts_s.values())
    lines = {
        "HTTP, JSON, event loop": http_s,
        **parts.parts_s,
        "rest of the engine's loop": rest,
    }
    rows: list[tuple[Any, ...]] = [
        (name, f"{seconds * 1e3:.2f}", f"{seconds / whole:.1%}") for name, seconds in lines.items()
    ]
    rows.append(("together", f"{whole * 1e3:.2f}", "100.0%"))
    counts = [end - start for start, end in parts.steps]
    for count, ours_s, library_s in zip(counts, parts.forward_s, parts.library_s, strict=True):
        rows.append((f"forward of {count} tokens: here", f"{ours_s * 1e3:.2f}", ""))
        rows.append(("    the library's own, on its own cache", f"{library_s * 1e3:.2f}", ""))
    rows.append((f"the library's own of {sum(counts)} at once", f"{parts.library_once_s * 1e3:.2f}", ""))
    title = f"{family}, last turn: what its time to first token is spent on"
    return title, ("", "ms", "share"), rows
