"""How the bytes for pools are shared out among the components."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from graftline.components import ReuseRule
from graftline.engine.config import EngineConfig
from graftline.errors import ConfigError

GIB = 1 << 30
TYPICAL_CONTEXT_TOKENS = 2048
BOUNDARIES_KEPT = 4


def device_budget(config: EngineConfig, device: torch.device) -> int:
    """Bytes for all pools: as set, else a share of what is free."""
    if config.device_bytes:
        return config.device_bytes
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        return int(free * 0.8)
    return GIB


def share_out(
    budget_bytes: int,
    slot_bytes: Mapping[str, int],
    rules: Mapping[str, ReuseRule],
    config: EngineConfig,
    page_tokens: int,
    longest_tokens: int,
) -> dict[str, int]:
    """Slots per component, such that as many typical conversations as possible are cached together.

    Every pool first gets what the running requests need. The rest is dealt out in conversations of
    `TYPICAL_CONTEXT_TOKENS`: their pages, and windows and states at `BOUNDARIES_KEPT` boundaries.

    Raises:
        ConfigError: the budget does not hold even one sequence of `longest_tokens`.
    """
    needed = {
        name: slots_needed(rule, page_tokens, longest_tokens, config.chunk_tokens)
        for name, rule in rules.items()
    }
    least = sum(needed[name] * slot_bytes[name] for name in rules)
    if least > budget_bytes:
        raise ConfigError(
            f"{budget_bytes} bytes of device memory cannot hold one sequence of {longest_tokens} tokens,"
            f" which needs {least}",
            hint="give more device memory, or a smaller max_model_tokens",
        )
    running = {name: running_slots(rule, page_tokens, config) for name, rule in rules.items()}
    unit = {name: conversation_slots(rule, page_tokens) for name, rule in rules.items()}
    fixed = {name: max(needed[name], running[name]) for name in rules}
    fixed_bytes = sum(fixed[name] * slot_bytes[name] for name in rules)
    if fixed_bytes > budget_bytes:
        return needed
    unit_bytes = sum(unit[name] * slot_bytes[name] for name in rules)
    units = (budget_bytes - fixed_bytes) // max(1, unit_bytes)
    return {name: int(fixed[name] + units * unit[name]) for name in rules}


def slots_needed(rule: ReuseRule, page_tokens: int, longest_tokens: int, chunk_tokens: int) -> int:
    """Slots with which one sequence alone can always finish (rule X-6)."""
    if rule.holds_state:
        return 3  # the live one, the one of the last page boundary, and one to copy at a stop
    return held_at_once(rule, page_tokens, longest_tokens, chunk_tokens)


def held_at_once(rule: ReuseRule, page_tokens: int, longest_tokens: int, chunk_tokens: int) -> int:
    """Most pages that one sequence holds at once: those looked back to, and the chunk computed.

    What it looks back to counts twice: the pages of its lease stay protected until all of them are left
    behind, and by then as many pages of its own follow on them.
    """
    last_page = -(-longest_tokens // page_tokens)
    chunk_pages = -(-chunk_tokens // page_tokens) + 1
    looks_back = max(
        (boundary - rule.first_page(boundary, page_tokens) for boundary in probes(last_page)), default=0
    )
    return min(last_page, 2 * looks_back + chunk_pages)


def probes(last_page: int) -> list[int]:
    """Boundaries that show how far a rule looks back: all of a short path, the ends of a long one."""
    return (
        list(range(last_page + 1))
        if last_page <= 4096
        else [*range(2048), *range(last_page - 2048, last_page + 1)]
    )


def running_slots(rule: ReuseRule, page_tokens: int, config: EngineConfig) -> int:
    """Slots that a full batch of typical requests needs."""
    if rule.holds_state:
        return 3 * config.max_running
    return config.max_running * held_at_once(
        rule, page_tokens, min(TYPICAL_CONTEXT_TOKENS, 4 * config.chunk_tokens), config.chunk_tokens
    )


def conversation_slots(rule: ReuseRule, page_tokens: int) -> int:
    """Slots that one cached conversation wants."""
    pages = -(-TYPICAL_CONTEXT_TOKENS // page_tokens)
    if rule.prefix_closed:
        return pages
    return min(pages, BOUNDARIES_KEPT * max(1, pages - rule.first_page(pages, page_tokens)))


def longest_that_fits(
    slots: Mapping[str, int],
    rules: Mapping[str, ReuseRule],
    config: EngineConfig,
    page_tokens: int,
    longest_tokens: int,
) -> int:
    """Longest sequence, at most `longest_tokens`, that the pools can hold alone; 0 for none."""
    low, high = 0, longest_tokens
    while low < high:
        middle = (low + high + 1) // 2
        fits = all(
            slots_needed(rule, page_tokens, middle, config.chunk_tokens) <= slots[name]
            for name, rule in rules.items()
        )
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
