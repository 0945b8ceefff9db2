"""Time to the first token of a prompt that comes up from host memory: as a whole, or layer by layer.

    python -m bench.serve.overlap [--families qwen3 inkling] [--tokens 6000]

Three engines on the same model are asked in turn, in this process, on one thread: one waits until the load is
there, one begins while it comes (rule H-10), and one has everything on the device, which no load can beat.
What overlapping can win is the time of the load, and no more than the time of computing what is left of the
prompt. All texts are compared.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from bench.harness import Report, Spread, console, show
from bench.serve.models import FAMILIES, bench_model, vocab_size
from bench.serve.options import shared_options

from graftline.engine import EngineConfig, HybridEngine, load_engine
from graftline.engine.api import GenerationRequest, SamplingParams, TokenEvent
from graftline.tiers.worth import BreakEven

WAYS: Mapping[str, bool] = {"whole": False, "layer by layer": True, "on the device": True}
"""Engines by name, and whether they overlap loads."""


def main() -> int:
    """Runs the benchmark; 1 when a text differs."""
    options = arguments()
    out = console()
    settings = {"preset": options.preset, "prompt_tokens": options.tokens, "rounds": options.rounds}
    report = Report("serve-overlap", options.seed, settings)
    out.print(report.machine.line())
    columns = ("model", "", "TTFT median, ms", "mean, ms", "of whole", "waited for the load, ms", "texts")
    rows, same = [], True
    for family in options.families:
        times, waits, equal = measure(family, options)
        same &= equal
        report.results[family] = {
            name: {"ttft_ms": asdict(Spread.of(times[name])), "waited_ms": asdict(Spread.of(waits[name]))}
            for name in WAYS
        }
        whole = Spread.of(times["whole"]).median
        for name in WAYS:
            spread, waited = Spread.of(times[name]), Spread.of(waits[name]).median
            share = f"{spread.median / whole:.3f}"
            rows.append(
                (family, name, spread.median, spread.mean, share, waited, "same" if equal else "DIFFER")
            )
    show(f"First token of a prompt of {options.tokens:,} tokens that the host has", columns, rows, out)
    out.print(f"written: {report.save(options.out)}")
    return 0 if same else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = shared_options(__doc__, FAMILIES)
    parser.add_argument("--tokens", type=int, default=6000, help="length of the prompt")
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


def measure(
    family: str, options: argparse.Namespace
) -> tuple[dict[str, list[float]], dict[str, list[float]], bool]:
    """Milliseconds to the first token and of waiting for the load, by engine; whether all texts are equal."""
    path = bench_model(family, options.preset, options.out / "bench-models")
    rng = np.random.default_rng(options.seed)
    prompt = rng.integers(0, vocab_size(options.preset), options.tokens).astype(np.uint32)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    waits: dict[str, list[float]] = {name: [] for name in WAYS}
    texts: set[int | None] = set()
    with ExitStack() as stack:
        engines = {
            name: stack.enter_context(running(path, overlap, options.tokens))
            for name, overlap in WAYS.items()
        }
        texts.update(ask(engine, prompt)[1] for engine in engines.values())
        for _ in range(options.rounds):
            for name, engine in engines.items():
                if name != "on the device":
                    forget_device(engine)
                took_ms, token, waited_ms = ask(engine, prompt)
                times[name].append(took_ms)
                waits[name].append(waited_ms)
                texts.add(token)
    return times, waits, len(texts) == 1


@contextmanager
def running(path: Path, overlap: bool, tokens: int) -> Iterator[HybridEngine]:
    """An engine with host memory that loads whatever is there."""
    config = EngineConfig(
        threads=1,
        max_model_tokens=tokens + 64,
        host_ratio=2.0,
        break_even=BreakEven(),
        overlap_loads=overlap,
    )
    engine = load_engine(str(path), config)
    try:
        yield engine
    finally:
        engine.close()


def ask(engine: HybridEngine, prompt: np.ndarray) -> tuple[float, int | None, float]:
    """Milliseconds to the first token, the token, and milliseconds of waiting for what came up."""
    events: queue.Queue[TokenEvent] = queue.Queue()
    started = time.perf_counter()
    sampling = SamplingParams(max_tokens=1, temperature=0, ignore_eos=True)
    engine.submit(GenerationRequest(prompt, sampling), events.put)
    event = events.get()
    took_ms = 1e3 * (time.perf_counter() - started)
    while event.finish_reason is None:
        event = events.get()
    return took_ms, event.token, event.reuse.restored_ms if event.reuse else 0.0


def forget_device(engine: HybridEngine) -> None:
    """What was computed is in the host alone."""
    with (
        engine._changed
    ):  # the engine's own lock: copies down end beside it, and nothing public waits for them
        assert engine.cache.lower is not None
        engine.cache.lower.flush()
    engine.clear_cache()


if __name__ == "__main__":
    sys.exit(main())
