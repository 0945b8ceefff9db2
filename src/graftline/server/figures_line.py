"""One line of figures per interval, for the log."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from graftline.engine.api import EngineStats
from graftline.server.figures import DEVICE, reused_by_tier
from graftline.server.state import State

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Line:
    """What happened between two snapshots.

    Attributes:
        text: the line.
        idle: whether nothing did.
    """

    text: str
    idle: bool


def line(before: EngineStats, now: EngineStats, seconds: float) -> Line:
    """The line of an interval."""
    prompt, reused = now.prompt_tokens - before.prompt_tokens, now.reused_tokens - before.reused_tokens
    computed, generated = (
        now.computed_tokens - before.computed_tokens,
        now.generated_tokens - before.generated_tokens,
    )
    used = ", ".join(
        f"{pool.component} {(pool.capacity - pool.free) / pool.capacity:.0%}"
        for pool in now.pools
        if pool.capacity
    )
    text = (
        f"Avg prompt throughput: {computed / seconds:.1f} tokens/s,"
        f" Avg generation throughput: {generated / seconds:.1f} tokens/s,"
        f" Running: {now.running} reqs, Waiting: {now.waiting} reqs, slots used: {used or '-'}"
    )
    if prompt:
        text += (
            f", reused {reused / prompt:.0%} ({_by_tier(before, now, prompt)}){_lost(before, now, prompt)}"
        )
    return Line(text, not (prompt or generated or now.running or now.waiting))


def _by_tier(before: EngineStats, now: EngineStats, prompt: int) -> str:
    earlier = reused_by_tier(before)
    gained = {tier: tokens - earlier[tier] for tier, tokens in reused_by_tier(now).items()}
    return ", ".join(
        f"{tier} {tokens / prompt:.0%}" for tier, tokens in gained.items() if tokens or tier == DEVICE
    )


def _lost(before: EngineStats, now: EngineStats, prompt: int) -> str:
    by_component: dict[str, int] = {}
    for (component, reason), tokens in now.lost_tokens.items():
        gained = tokens - before.lost_tokens.get((component, reason), 0)
        by_component[component] = by_component.get(component, 0) + gained
    return "".join(
        f", lost {tokens / prompt:.0%} to {name}" for name, tokens in by_component.items() if tokens
    )


async def log_figures(state: State) -> None:
    """Writes the lines, until it is cancelled: at info level, or at debug level when nothing happened."""
    seconds = state.config.log_interval_s
    stats = state.backend().engine.stats
    before = await asyncio.to_thread(stats)
    while seconds > 0:
        await asyncio.sleep(seconds)
        now = await asyncio.to_thread(stats)
        made = line(before, now, seconds)
        logger.log(logging.DEBUG if made.idle else logging.INFO, "%s", made.text)
        before = now
