"""The cells of the benchmark: one figure each, computed once and kept in a folder.

A cell is a trace x composition, with a capacity, with a policy. What was computed lies in a JSON file under
its name; a run that is stopped goes on where it was. A cell remembers the code that made it: cells of older
code are used, and counted, until they are asked for again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness import ROOT

from graftline.replay import FileTrace, PagedTrace, Setup, SweepPlan, parse_composition, simulate
from graftline.replay.compositions import Composition
from graftline.replay.forest import Passages, passages
from graftline.replay.sweep import endless_slots, optimum, sizes

SCHEMA = 2
AHEAD = ("forest", "optimum", "prices", "requests", "tokens", "formats", "lines", "texts", "compositions")
"""Modules of the replay on which the optimum depends; nothing of the cache is among them."""
CACHE = ("cache", "components", "policies", "replay", "tree")
TOKEN_BYTES = 32 << 10
STATE_BYTES = 16 << 20
"""What bytes are told with: a token of each component, and a state; of no model in particular."""

Cell = dict[str, Any]


def digest_of(paths: Iterable[Path]) -> str:
    """Names the content of files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def code_ahead() -> str:
    """Names the code of the optimum."""
    source = ROOT / "src" / "graftline"
    return digest_of([*(source / "components").glob("*.py"), *(source / "replay" / f"{n}.py" for n in AHEAD)])


def code_of_cache() -> str:
    """Names the code of the cache, both cores, and of the replay."""
    source = ROOT / "src" / "graftline"
    python = [path for folder in CACHE for path in (source / folder).glob("*.py")]
    return digest_of([*python, *(ROOT / "crates" / "core" / "src").rglob("*.rs")])


class NotKeptError(LookupError):
    """A figure was never computed, and nothing is to be computed now."""


@dataclass(slots=True)
class Cells:
    """Computed cells, in a folder.

    Attributes:
        folder: where they lie.
        again: policies whose cells are computed anew; `all` for everything.
        only_kept: whether nothing is computed.
        code_ahead: the code of the optimum.
        code: the code of everything.
        older: how many cells came from older code.
        computed: how many were computed now.
    """

    folder: Path
    again: tuple[str, ...] = ()
    only_kept: bool = False
    code_ahead: str = field(default_factory=code_ahead)
    code: str = field(default_factory=code_of_cache)
    older: int = 0
    computed: int = 0

    def get(self, name: str, policy: str, make: Callable[[], Cell]) -> Cell:
        """A cell: kept, or computed and kept. It is written whole or not at all.

        Args:
            name: of the cell.
            policy: whose figure it is; empty for an endless cache, `optimum` for that.
            make: computes it.

        Raises:
            NotKeptError: it would have to be computed, and that is not wanted.
        """
        code = self.code_ahead if policy == "optimum" else self.code
        path = self.folder / f"{safe(name)}.json"
        if path.exists() and not {"all", policy} & set(self.again):
            found: Cell = json.loads(path.read_text())
            if found["schema"] == SCHEMA:
                self.older += found["code"] != code
                return found["cell"]
        if self.only_kept:
            raise NotKeptError(name)
        cell = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"schema": SCHEMA, "code": code, "cell": cell}))
        os.replace(part, path)
        self.computed += 1
        return cell


def safe(name: str) -> str:
    """A name that every file system takes; different names stay different."""
    text = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in name)
    return text if text == name else f"{text}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class TraceCells:
    """Cells of one trace; it is read only when one has to be computed.

    Args:
        path: the trace.
        requests_max: stop after so many; 0 for all.
        cells: where cells are kept.
        core: which tree core.
    """

    def __init__(self, path: Path, requests_max: int, cells: Cells, core: str) -> None:
        self.path, self.requests_max, self.cells, self.core = path, requests_max, cells, core
        self.name = f"{path.parent.name}-{path.name.removesuffix('.jsonl.gz')}-{requests_max or 'all'}"
        self._trace: PagedTrace | None = None
        self._ahead: Passages | None = None

    def read(self) -> tuple[PagedTrace, Passages]:
        """The trace and its paths."""
        if self._trace is None or self._ahead is None:
            self._trace = PagedTrace(FileTrace(self.path, requests_max=self.requests_max))
            self._ahead = passages(self._trace)
        return self._trace, self._ahead

    def base(self, text: str) -> Cell:
        """An endless cache of one composition."""
        return self.cells.get(f"{self.name}-{text}", "", lambda: self._base(text))

    def optimum(self, text: str, capacity: float) -> Cell:
        """The optimum at one size."""
        return self.cells.get(
            f"{self.name}-{text}-{capacity}",
            "optimum",
            lambda: self._optimum(parse_composition(text), capacity),
        )

    def run(self, text: str, capacity: float, policy: str) -> Cell:
        """One policy at one size."""
        return self.cells.get(
            f"{self.name}-{text}-{capacity}-{policy}",
            policy,
            lambda: self._run(parse_composition(text), capacity, policy),
        )

    def _base(self, text: str) -> Cell:
        trace, ahead = self.read()
        plan = SweepPlan(parse_composition(text), core=self.core)
        page_tokens = trace.page_tokens
        setup = Setup(plan.composition, endless_slots(plan, ahead, page_tokens), page_tokens, core=self.core)
        figures = simulate(trace, setup)
        return {
            "requests": ahead.requests,
            "prompt_tokens": figures.prompt_tokens,
            "page_tokens": page_tokens,
            "working_set": {pool.component: pool.held_slots for pool in figures.pools},
            "endless_tokens": figures.reused_tokens,
            "prefix_tokens": int(ahead.endless_pages().sum()) * page_tokens,
            "wall_s": figures.wall_s,
        }

    def _slots(self, composition: Composition, capacity: float) -> dict[str, int]:
        trace, _ = self.read()
        plan = SweepPlan(composition, capacities=(capacity,))
        ((_, slots),) = sizes(plan, self.base(composition.name)["working_set"], trace.page_tokens)
        return slots

    def _optimum(self, composition: Composition, capacity: float) -> Cell:
        trace, ahead = self.read()
        setup = Setup(composition, self._slots(composition, capacity), trace.page_tokens)
        best = optimum(ahead, setup, int(ahead.prompt_tokens.sum()), overlapping=False)
        return {"kind": best.kind, "reused_tokens": best.reused_tokens}

    def _run(self, composition: Composition, capacity: float, policy: str) -> Cell:
        trace, _ = self.read()
        slots = self._slots(composition, capacity)
        slot_bytes = bytes_a_slot(composition, trace.page_tokens)
        setup = Setup(composition, slots, trace.page_tokens, policy, self.core, slot_bytes=slot_bytes)
        figures = simulate(trace, setup)
        return {
            "slots": slots,
            "bytes": sum(count * slot_bytes[name] for name, count in slots.items()),
            "reused_tokens": figures.reused_tokens,
            "refused": figures.refused,
            "skipped_checkpoints": figures.skipped_checkpoints,
            "first_token_p50_s": figures.first_token.p50_s,
            "first_token_p99_s": figures.first_token.p99_s,
            "refusals": [
                [refusal.component, refusal.reason, refusal.requests, refusal.lost_tokens]
                for refusal in figures.refusals
            ],
            "wall_s": figures.wall_s,
        }


def bytes_a_slot(composition: Composition, page_tokens: int) -> dict[str, int]:
    """Bytes of a slot of each component."""
    return {
        name: STATE_BYTES if rule.holds_state else TOKEN_BYTES * page_tokens
        for name, rule in composition.rules
    }


@dataclass(frozen=True, slots=True)
class Row:
    """One run beside the optimum and beside `lru`; rates are shares of the prompt tokens."""

    trace: str
    composition: str
    capacity: float
    policy: str
    hit_rate: float
    lru_rate: float
    best_rate: float
    best_kind: str
    endless_rate: float
    pool_bytes: int
    first_token_p50_s: float
    wall_s: float

    @property
    def share(self) -> float:
        """Share of the optimum."""
        return self.hit_rate / self.best_rate if self.best_rate else 1.0

    @property
    def gap(self) -> float:
        """What the least recently used order leaves to the optimum."""
        return self.best_rate - self.lru_rate

    @property
    def closed(self) -> float | None:
        """Share of that gap that is closed; None where there is none to speak of."""
        return (self.hit_rate - self.lru_rate) / self.gap if self.gap > 0.0005 else None


def rows_of(
    cells: TraceCells, name: str, text: str, capacities: tuple[float, ...], policies: tuple[str, ...]
) -> Iterator[Row]:
    """All runs of a trace and composition."""
    base = cells.base(text)
    total = base["prompt_tokens"]
    for capacity in capacities:
        best = cells.optimum(text, capacity)
        lru = cells.run(text, capacity, "lru")
        for policy in policies:
            cell: Mapping[str, Any] = cells.run(text, capacity, policy)
            yield Row(
                trace=name,
                composition=text,
                capacity=capacity,
                policy=policy,
                hit_rate=cell["reused_tokens"] / total,
                lru_rate=lru["reused_tokens"] / total,
                best_rate=best["reused_tokens"] / total,
                best_kind=best["kind"],
                endless_rate=base["endless_tokens"] / total,
                pool_bytes=cell["bytes"],
                first_token_p50_s=cell["first_token_p50_s"],
                wall_s=cell["wall_s"],
            )
