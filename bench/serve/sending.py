"""Sends agents' requests to one server after another, and keeps what they answered."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from bench.serve.agents import SHARED_TOKENS, Ask
from bench.serve.client import Reply, complete
from demo.talking import Server
from rich.console import Console
from transformers import AutoConfig

from graftline.engine.layouts import plan_layout

CHUNK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Run:
    """One server's answers to all requests.

    Attributes:
        wall_s: from sending to the end of the answer, over all requests.
        stats: the server's own counters at the end.
        info: what it says of itself.
    """

    name: str
    asks: Sequence[Ask]
    replies: Sequence[Reply]
    wall_s: float
    stats: Mapping[str, Any]
    info: Mapping[str, Any]

    @property
    def prompt_tokens(self) -> int:
        """Of all requests."""
        return sum(len(ask.prompt) for ask in self.asks)

    @property
    def reused_tokens(self) -> int:
        """Of all requests."""
        return sum(reply.reused_tokens for reply in self.replies)

    @property
    def hit_rate(self) -> float:
        """Reused share of the prompt tokens."""
        return self.reused_tokens / self.prompt_tokens

    @property
    def tokens_per_s(self) -> float:
        """Effective input tokens a second."""
        return self.prompt_tokens / self.wall_s

    def hit_rate_by_turn(self) -> list[tuple[int, float]]:
        """Hit rate of each turn over all agents."""
        turns = sorted({ask.turn for ask in self.asks})
        rates = []
        for turn in turns:
            pairs = [(a, r) for a, r in zip(self.asks, self.replies, strict=True) if a.turn == turn]
            prompt = sum(len(ask.prompt) for ask, _ in pairs)
            rates.append((turn, sum(reply.reused_tokens for _, reply in pairs) / prompt))
        return rates


def endless_rate(asks: Sequence[Ask], page_tokens: int) -> float:
    """Hit rate of an endless device: each prompt's longest prefix of an earlier one, in whole pages."""
    before: dict[int, int] = {}
    reused = shared = 0
    for ask in asks:
        known = before.get(ask.agent, shared)
        reused += min(known, len(ask.prompt) - 1) // page_tokens * page_tokens
        before[ask.agent], shared = len(ask.prompt), SHARED_TOKENS
    return reused / sum(len(ask.prompt) for ask in asks)


def pool_flags(model: Path, asks: Sequence[Ask], page_tokens: int, share: float) -> list[str]:
    """Flags for one torch thread, and for pools of a share of the working set.

    Never less than one request needs.
    """
    layout = plan_layout(AutoConfig.from_pretrained(model))
    page = math.lcm(page_tokens, layout.page_multiple)
    last = {ask.agent: len(ask.prompt) for ask in asks}
    longest = max(last.values()) // page + 2
    slots = {}
    for plan in layout.components:
        if plan.rule.holds_state:
            slots[plan.name] = max(8, round(share * 2 * len(last)) + 4)
            continue
        window = longest - plan.rule.first_page(longest, page)
        if plan.rule.prefix_closed:
            needed, least = sum(length // page + 1 for length in last.values()), longest + 4
        else:
            needed, least = len(last) * window, 2 * window + CHUNK_TOKENS // page + 2
        slots[plan.name] = max(round(share * needed), least)
    flags = ["--threads", "1", "--max-model-len", "8192", "--log-level", "warning"]
    flags += ["--page-size", str(page_tokens), "--chunk-tokens", str(CHUNK_TOKENS)]
    return [*flags, "--slots", ",".join(f"{name}={count}" for name, count in slots.items())]


def send_in_turn(
    model: Path,
    servers: Mapping[str, Sequence[str]],
    asks: Sequence[Ask],
    out: Console,
    span_s: float = 0.0,
) -> list[Run]:
    """Each request to every server in turn, so that what else the machine does falls on all of them.

    Args:
        model: the folder of the model.
        servers: flags by name; each server runs from the first request to the last.
        asks: the requests.
        out: for what the servers say.
        span_s: seconds over which the requests are spread as their `at` says; 0 sends them without a break.
    """
    replies: dict[str, list[Reply]] = {name: [] for name in servers}
    with ExitStack() as stack:
        clients = {name: _client(stack, model, flags, asks[0], out) for name, flags in servers.items()}
        begun = time.monotonic()
        for ask in asks:
            time.sleep(max(0.0, begun + span_s * ask.at - time.monotonic()))
            for name, client in clients.items():
                session = f"agent-{ask.agent}"
                replies[name].append(complete(client, ask.prompt, ask.answer_tokens, session_id=session))
        return [
            Run(
                name,
                asks,
                replies[name],
                sum(reply.total_s for reply in replies[name]),
                client.get("/cache/stats").json(),
                client.get("/server_info").json(),
            )
            for name, client in clients.items()
        ]


def _client(stack: ExitStack, model: Path, flags: Sequence[str], first: Ask, out: Console) -> httpx2.Client:
    """A client of a new server that has computed something, so that it is warm."""
    server = stack.enter_context(Server(model, out, *flags))
    client = stack.enter_context(httpx2.Client(base_url=server.url, timeout=600))
    complete(client, first.prompt[:40], 1, use_cache=False)
    return client


def texts_that_differ(runs: Sequence[Run]) -> int:
    """Requests whose tokens were not the same in every run."""
    return sum(
        len({reply.tokens for reply in replies}) > 1
        for replies in zip(*(r.replies for r in runs), strict=True)
    )
