"""Hit rates of an endless cache on public traces, against figures that were published with them.

The published figures count blocks, the last, partial one too, and let a prompt be reused to its last block;
a server reuses whole pages and computes one token at least (rules K-2, M-3), and its rate is of tokens.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from graftline.replay.compositions import parse_composition
from graftline.replay.forest import passages
from graftline.replay.formats import FileTrace
from graftline.replay.optimum import clairvoyant
from graftline.replay.simulate import Setup, simulate
from graftline.replay.tokens import PagedTrace

FOLDER = Path(os.environ.get("GRAFTLINE_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
PUBLISHED = {
    "mooncake_conversation/trace": 0.3578,
    "mooncake_synthetic/trace": 0.6345,
    "ragpulse/trace": 0.3147,
    "moatless_swebench/trace_k16": 0.6586,
    "lmcache_agents/trace_k8": 0.8972,
    "oasst_trees/trace_k16": 0.5730,
}


def trace_file(name: str) -> FileTrace:
    path = FOLDER / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no trace at {path}; GRAFTLINE_TRACES names the folder")
    return FileTrace(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_endless_cache_has_the_published_rate(name: str) -> None:
    """By their way of counting, to the last digit; by ours, lower by less than a page a request."""
    found = wanted = 0
    seen: set[int] = set()
    for request in (trace := trace_file(name)):
        known = np.fromiter((ident in seen for ident in request.prompt_ids.tolist()), dtype=np.bool_)
        found += int(known.argmin()) if not known.all() else len(known)
        wanted += len(known)
        seen.update(request.prompt_ids.tolist(), request.answer_ids.tolist())
    assert found / wanted == pytest.approx(PUBLISHED[name], abs=6e-5)
    paged = PagedTrace(trace)
    ahead = passages(paged)
    slots = ahead.pages + 2 * int(ahead.occupied_pages.max())
    figures = simulate(paged, Setup(parse_composition("full"), {"full": slots}, paged.page_tokens))
    assert figures.reused_tokens == ahead.endless_pages().sum() * paged.page_tokens
    lost_tokens = found * paged.page_tokens - figures.reused_tokens
    assert 0 <= lost_tokens <= figures.requests * paged.page_tokens


@pytest.mark.parametrize("name", ["oasst_trees/trace_k16", "moatless_swebench/trace_k16"])
def test_lru_stays_below_the_optimum(name: str) -> None:
    trace = PagedTrace(trace_file(name))
    ahead = passages(trace)
    rates = []
    for share in (0.05, 0.1, 0.25, 0.5):
        slots = int(share * ahead.pages)
        figures = simulate(trace, Setup(parse_composition("full"), {"full": slots}, trace.page_tokens))
        best = int(clairvoyant(ahead, slots).reused_pages.sum()) * trace.page_tokens
        assert figures.reused_tokens <= best
        rates.append(figures.reused_tokens)
    assert rates == sorted(rates)
