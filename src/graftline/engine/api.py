"""What the engine takes and gives: requests in, token events out.

The server sees the engine through this file alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from graftline import cache
from graftline.cache import Shortfall
from graftline.cache.explain import Explanation
from graftline.cache.flow import Flow
from graftline.key import Tokens
from graftline.plan import Tier
from graftline.tiers.store.guard import StoreFigures
from graftline.tiers.worth import BreakEven

FinishReason = Literal["stop", "length", "abort", "error"]
PrefetchPolicy = Literal["best_effort", "wait", "timeout"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        temperature: 0 is greedy.
        top_p, top_k: nucleus and top-k cut; 1.0 and 0 switch them off.
        min_p: cut relative to the likeliest token; 0.0 switches it off.
        seed: makes sampling repeatable; None draws a fresh one.
        stop_token_ids: generation ends when one is sampled; it is not part of the text.
        ignore_eos: go on after the model's own end-of-text tokens.
        logprobs: how many of the likeliest tokens to report with each token; None for none.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class ReuseReport:
    """What was reused of a prompt, and what was not, with the reason (rule M-4).

    All counts are in tokens of the prompt. `reused_tokens` is what was not computed; `matched_tokens`
    is how much of the prompt the tree knew; `lost_tokens = matched_tokens - reused_tokens`.
    `boundaries` gives each component's own deepest valid boundary. `coalesced_tokens` are those of
    `reused_tokens` that another request computed while this one waited for it (rule X-7). `host_tokens` and
    `store_tokens` are those that came up from the tiers below, in `restored_ms` (rule X-8); the rest of
    `reused_tokens` was on the device. `shortfalls` tell what those tiers have and was not brought up, and
    why (rule H-9); they are counted apart from `lost_tokens`, which the device alone lost.
    """

    prompt_tokens: int
    matched_tokens: int = 0
    reused_tokens: int = 0
    limited_by: str = ""
    lost_tokens: int = 0
    reason: str = ""
    boundaries: Mapping[str, int] = field(default_factory=dict)
    coalesced_tokens: int = 0
    host_tokens: int = 0
    store_tokens: int = 0
    restored_ms: float = 0.0
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def device_tokens(self) -> int:
        """Reused tokens that were on the device."""
        return self.reused_tokens - self.host_tokens - self.store_tokens


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        tokens: the prompt, u32, at least one token.
        sampling: how to choose tokens.
        salt: isolates tenants: part of the namespace.
        adapter: adapter identity: part of the namespace.
        session_id: who will come back; empty for nobody in particular.
        priority: larger runs first.
        use_cache: False computes the whole prompt and keeps nothing of it.
        marks: places in the prompt where other prompts are expected to leave it (rule C-5).
        expected_return_s: when the session's next request is expected, from the end of this one.
        label: names the request in explanations; the engine's number by default.
        prefetch_policy, prefetch_timeout_s: in place of the engine's; None takes those.
    """

    tokens: Tokens
    sampling: SamplingParams
    salt: str = ""
    adapter: str = ""
    session_id: str = ""
    priority: int = 0
    use_cache: bool = True
    marks: tuple[int, ...] = ()
    expected_return_s: float | None = None
    label: str = ""
    prefetch_policy: PrefetchPolicy | None = None
    prefetch_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One step of a request's life, in order; the last one has a `finish_reason`.

    Attributes:
        token: the token generated, or None when the event only tells the end.
        logprob, top_logprobs: only when asked for: natural log; pairs of token and log-probability.
        finish_reason: `stop`, `length`, `abort` or `error` on the last event.
        reuse: with the first event that carries a token or the end.
        error: message for `finish_reason == "error"`.
    """

    token: int | None
    finish_reason: FinishReason | None = None
    reuse: ReuseReport | None = None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class PoolUse(cache.PoolUse):
    """Slots of one component's pool: `free + held + private == capacity` (rule C-1), and the bytes of one."""

    slot_bytes: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, and sizes now.

    `flow` tells what moved between the tiers, None without a host tier; `stores` what each store did,
    the near one first. `host_tokens` and `store_tokens` are those of `reused_tokens` that came up from
    the tiers below.

    `shortfalls` counts the requests that a tier below had more for than they got, and `shortfall_tokens` how
    much that was as far as it is known, both by tier and reason (rule H-9). `break_even` is what loading is
    judged by now.

    `coalesced_requests` waited for another that computed the same prefix, and took over
    `coalesced_tokens` from it (rule X-7).
    """

    running: int
    waiting: int
    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    generated_tokens: int
    preemptions: int
    requests: Mapping[str, int]
    lost_tokens: Mapping[tuple[str, str], int]
    skipped_checkpoints: int
    evicted_slots: Mapping[str, int]
    pools: tuple[PoolUse, ...]
    host_pools: tuple[PoolUse, ...] = ()
    flow: Flow | None = None
    stores: tuple[StoreFigures, ...] = ()
    host_tokens: int = 0
    store_tokens: int = 0
    sessions: int = 0
    coalesced_requests: int = 0
    coalesced_tokens: int = 0
    shortfalls: Mapping[tuple[Tier, str], int] = field(default_factory=dict)
    shortfall_tokens: Mapping[tuple[Tier, str], int] = field(default_factory=dict)
    break_even: BreakEven | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is served: fixed from the start.

    `break_even` is None without a host tier; `stores` are URLs without passwords.
    """

    model_type: str
    composition: str
    page_tokens: int
    max_model_tokens: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    device: str
    core: str
    pools: tuple[PoolUse, ...]
    host_pools: tuple[PoolUse, ...] = ()
    write_policy: str = "none"
    stores: tuple[str, ...] = ()
    break_even: BreakEven | None = None


class Engine(Protocol):
    """Serves requests from any thread. Events of a request come in order, on the engine's thread."""

    info: EngineInfo

    @property
    def failed(self) -> bool:
        """Whether the engine stopped after a fault; it cannot be used any more."""

    def submit(self, request: GenerationRequest, on_event: Callable[[TokenEvent], None]) -> int:
        """Queues a request and returns its id.

        `on_event` must not block; it is called until an event with a `finish_reason` was given.

        Raises:
            ConfigError: an empty prompt, a token id outside the vocabulary, bad sampling values, or
                more tokens than the model or the pools can ever hold (rule X-6).
            CapacityError: the queue of waiting requests is full; try again later.
            EngineClosedError: the engine was closed or stopped after a fault.
        """

    def abort(self, request_id: int) -> None:
        """Ends a request early with `abort`, keeping nothing more of it. Unknown ids are ignored."""

    def finish(self, request_id: int) -> None:
        """Ends a request early with `stop`, keeping what it computed. Unknown ids are ignored."""

    def stats(self) -> EngineStats:
        """Counters and sizes, a consistent snapshot."""

    def clear_cache(self, tier: Tier = Tier.DEVICE) -> int:
        """Frees everything in a tier that no running request needs; returns how many slots, 0 for a store.

        Raises:
            StoreError: a store could not be cleared.
        """

    def attach_store(self, url: str) -> None:
        """Begins to use one more store, below those that are there.

        Raises:
            ConfigError: a URL that makes no sense or is attached already, or no host tier above it.
        """

    def detach_store(self, url: str) -> bool:
        """Stops to use a store and closes it; False when none has this URL, as `stats` shows it."""

    def close_session(self, name: str) -> bool:
        """Ends a session: what it would come back to weighs nothing any more. Whether it was open."""

    def explain(self, label: str) -> Explanation | None:
        """Why a request reused what it did; None when it is not known (any more).

        Raises:
            ConfigError: the engine does not remember what left (`explain_pages` is 0).
        """

    def hurry(self) -> None:
        """Closing, now or later, waits for no store. Does not close; from any thread."""

    def close(self) -> int:
        """Aborts what runs, ends the thread, frees the pools. May be called twice.

        Returns how many boundaries that were kept did not reach the stores in time.
        """
