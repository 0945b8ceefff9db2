"""Settings of the engine; each docstring below a field is also the help of its flag."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from graftline.cache.lower import WritePolicy
from graftline.cache.placement import parse_placement
from graftline.engine.api import PrefetchPolicy
from graftline.errors import ConfigError
from graftline.policies import make_policy
from graftline.tiers.worth import BreakEven


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model is run, and how much it may hold.

    Attributes:
        page_tokens: tokens a page; rounded up to what the model needs.
        chunk_tokens: prompts are cut at multiples of this many tokens (rule X-2).
        max_batched_tokens: most tokens computed in one step; at least
            `chunk_tokens + max_running`.
        max_running: most requests computed at once.
        max_waiting: most requests that wait; more are refused.
        max_model_tokens: longest sequence; 0 takes the model's own limit.
        device_bytes: bytes for all pools; 0 takes 80 % of what is free on CUDA, and 1 GiB on a CPU.
        slots: slots per component, in place of a share of `device_bytes`.
        prefix_cache: whether prompts reuse anything.
        coalesce: whether a request waits for a running one that computes the same prefix (rule X-7).
        core: which tree core keeps the books: `auto`, `python` or `rust`.
        policy: which values leave first, as `graftline.policies.make_policy` reads it.
        checkpoints: which boundaries get windows and states (rule C-5), as
            `graftline.cache.placement.parse_placement` reads it.
        namespace_share: most of each pool that one adapter and salt may keep (rule C-12).
        session_ttl_s: a session idle for longer is closed.
        max_sessions: most sessions that are open; the one idle longest is closed first.
        infer_sessions: whether requests without a session are taken for turns of the conversations that
            they go on with (rule S-9).
        explain_pages: pages of each component whose fate is remembered after they left, so that requests
            are told what the tree has forgotten (rule C-11); 0 for none.
        dtype: weights' type, or `auto` for the checkpoint's own.
        device: `cpu`, `cuda`, `cuda:1`, or `auto`.
        host_bytes: bytes of host memory for what the device has no room for; 0 for none.
        host_ratio: the same as a multiple of the device's pools, in place of `host_bytes`.
        overlap_loads: whether a request that runs alone begins while the host's values are still on their
            way, and waits at each layer for that layer (rule H-10).
        write_policy: when values go down to the host: `write_through` as they are kept, `write_back` when
            the device runs short of room, `none` never.
        write_uses: `write_through` takes a boundary down after this many uses; keeping it is the first.
        stores: URLs of stores below the host, near ones first; they need a host tier.
        prefetch_policy: what a request does while a store brings up a part of its prompt: `wait` for it,
            `timeout` waits for `prefetch_timeout_s`, `best_effort` goes on when it is its turn.
        prefetch_timeout_s: seconds for `timeout`.
        drain_s: how long closing may wait for what is on its way to a store.
        break_even: speeds that tell when loading pays; None measures them at start.
        threads: CPU threads of torch; 0 takes torch's choice, but 1 on one or two cores.
    """

    page_tokens: int = 16
    chunk_tokens: int = 512
    max_batched_tokens: int = 2048
    max_running: int = 16
    max_waiting: int = 1024
    max_model_tokens: int = 0
    device_bytes: int = 0
    slots: Mapping[str, int] = field(default_factory=dict)
    prefix_cache: bool = True
    coalesce: bool = True
    core: str = "auto"
    policy: str = "lru"
    checkpoints: str = "replay,end,answer,branch,marks"
    namespace_share: float = 1.0
    session_ttl_s: float = 3600.0
    max_sessions: int = 100_000
    infer_sessions: bool = True
    explain_pages: int = 0
    dtype: str = "auto"
    device: str = "auto"
    host_bytes: int = 0
    host_ratio: float = 0.0
    overlap_loads: bool = True
    write_policy: WritePolicy = "write_through"
    write_uses: int = 1
    stores: tuple[str, ...] = ()
    prefetch_policy: PrefetchPolicy = "timeout"
    prefetch_timeout_s: float = 2.0
    drain_s: float = 10.0
    break_even: BreakEven | None = None
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("page_tokens", "chunk_tokens", "max_running", "max_waiting", "write_uses"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be at least 1")
        for name in (
            "max_model_tokens",
            "device_bytes",
            "threads",
            "host_bytes",
            "host_ratio",
            "drain_s",
            "explain_pages",
        ):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must not be negative")
        least = self.chunk_tokens + self.max_running
        if self.max_batched_tokens < least:
            raise ConfigError(
                f"max_batched_tokens is {self.max_batched_tokens}, it must be at least {least}",
                hint="a whole chunk must fit beside one token of every running request",
            )
        if not 0 < self.namespace_share <= 1:
            raise ConfigError(f"namespace_share is {self.namespace_share}, it must be above 0 and at most 1")
        make_policy(self.policy)
        parse_placement(self.checkpoints)
        self._check_tiers()

    @property
    def has_host(self) -> bool:
        """Whether there is a host tier."""
        return bool(self.host_bytes or self.host_ratio)

    def _check_tiers(self) -> None:
        if self.host_bytes and self.host_ratio:
            raise ConfigError("host_bytes and host_ratio are both set", hint="give one of them")
        if self.stores and not self.has_host:
            raise ConfigError(
                f"the store {self.stores[0]} has no host memory above it",
                hint="give host_bytes or host_ratio",
            )
        if self.write_policy not in get_args(WritePolicy):
            choices = ", ".join(get_args(WritePolicy))
            raise ConfigError(f"unknown write_policy '{self.write_policy}'", hint=f"choose one of {choices}")
        check_prefetch(self.prefetch_policy, self.prefetch_timeout_s)


def check_prefetch(policy: str, timeout_s: float) -> None:
    """What no request can do while a store is asked.

    Raises:
        ConfigError: an unknown policy, or a time that is not above 0.
    """
    if policy not in get_args(PrefetchPolicy):
        choices = ", ".join(get_args(PrefetchPolicy))
        raise ConfigError(f"unknown prefetch_policy '{policy}'", hint=f"choose one of {choices}")
    if not 0 < timeout_s < math.inf:
        raise ConfigError(f"prefetch_timeout_s is {timeout_s}, it must be above 0")
