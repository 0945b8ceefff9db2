"""From a checkpoint to a running engine."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from graftline.cache import HostConfig, PrefixCache, SessionLimits, StoreConfig, host_slots
from graftline.cache.history import History
from graftline.cache.placement import parse_placement
from graftline.cache.watch import Watch
from graftline.components import Chunk, ComponentSpec, ReuseRule, Window
from graftline.engine.api import EngineInfo
from graftline.engine.config import EngineConfig
from graftline.engine.engine import HybridEngine
from graftline.engine.layouts import ModelLayout, plan_layout
from graftline.engine.measure import measure
from graftline.engine.runner import Runner
from graftline.engine.sizes import device_budget, longest_that_fits, share_out
from graftline.engine.tallies import pool_uses
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.tiers.store.open import open_stores

DEFAULT_MODEL_TOKENS = 8192
FINGERPRINT_STEP = 2**22
"""Values of a weight that are copied from the device at once."""


def load_engine(path_or_name: str, config: EngineConfig | None = None) -> HybridEngine:
    """Loads a checkpoint from a local folder or by its hub name, and starts an engine on it.

    Raises:
        UnsupportedModelError: the model cannot be served exactly (rule X-4).
        ConfigError: settings that cannot work.
        OSError: no checkpoint there.
    """
    config = config or EngineConfig()
    dtype = config.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    model = AutoModelForCausalLM.from_pretrained(path_or_name, dtype=dtype)
    return start_engine(model, config)


def start_engine(model: Any, config: EngineConfig | None = None) -> HybridEngine:
    """Starts an engine on a loaded model, which it takes over."""
    config = config or EngineConfig()
    torch.set_num_threads(config.threads or default_threads())
    layout = plan_layout(model.config)
    device = pick_device(config.device)
    page_tokens = math.lcm(config.page_tokens, layout.page_multiple)
    longest = longest_sequence(layout, config)
    rules = {plan.name: plan.rule for plan in layout.components}

    def slots(slot_bytes: Mapping[str, int]) -> dict[str, int]:
        budget = device_budget(config, device)
        if set(config.slots) >= set(rules):
            return dict(config.slots)
        return {
            **share_out(budget, slot_bytes, rules, config, page_tokens, longest),
            **config.slots,
        }

    fingerprint = model_fingerprint(model)
    runner = Runner(model, layout, page_tokens=page_tokens, slots=slots, device=device)
    specs = [
        ComponentSpec(
            plan.name, plan.rule, runner.pools[plan.name].slots, plan.sidecars, runner.slot_bytes[plan.name]
        )
        for plan in layout.components
    ]
    counts = {spec.name: spec.slots for spec in specs}
    longest = longest_that_fits(counts, rules, config, page_tokens, longest)
    if longest < 2:
        raise ConfigError(f"slots {counts} cannot hold even two tokens", hint="give every pool more slots")
    bell = threading.Event()
    host = host_tier(specs, runner, config, bell.set)
    cache = PrefixCache(
        specs,
        page_tokens=page_tokens,
        pools=runner.pools,
        core=config.core,
        policy=config.policy,
        record_events=config.explain_pages > 0,
        host=host,
        sessions=SessionLimits(config.session_ttl_s, config.max_sessions, config.infer_sessions),
    )
    if cache.lower is not None:
        for pool in runner.pools.values():
            pool.gate = cache.lower.link.gate
    cache.namespace_share = config.namespace_share
    cache.cut_tokens = config.chunk_tokens
    cache.placement = parse_placement(config.checkpoints)
    if config.explain_pages:
        cache.start_watch(Watch(History(config.explain_pages)))
    info = EngineInfo(
        model_type=layout.model_type,
        composition=" + ".join(rule_text(plan.name, plan.rule) for plan in layout.components),
        page_tokens=page_tokens,
        max_model_tokens=longest,
        vocab_size=runner.vocab_size,
        eos_token_ids=eos_tokens(model),
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(device),
        core=cache.core.name,
        pools=pool_uses(cache),
        host_pools=pool_uses(cache, Tier.HOST),
        stores=tuple(store.url for store in host.store.chain.stores) if host and host.store else (),
        write_policy=host.write_policy if host else "none",
        break_even=host.worth if host else None,
    )
    return HybridEngine(runner, cache, config, info, fingerprint, bell)


def host_tier(
    specs: Sequence[ComponentSpec], runner: Runner, config: EngineConfig, wake: Callable[[], None]
) -> HostConfig | None:
    """Host memory as it was asked for, pinned on CUDA, and the stores below it; None for none."""
    if not config.has_host:
        return None
    slots = host_slots(specs, host_bytes=config.host_bytes or None, ratio=config.host_ratio)
    rows = {}
    if runner.device.type == "cuda":
        for spec in specs:
            shape = (slots[spec.name], spec.slot_bytes)
            rows[spec.name] = torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    store = StoreConfig(open_stores(config.stores)) if config.stores else None
    worth = config.break_even or measure(runner, config.chunk_tokens, store.chain if store else None)
    return HostConfig(
        slots,
        config.write_policy,
        config.write_uses,
        worth=worth,
        rows=rows,
        store=store,
        wake=wake,
    )


def rule_text(name: str, rule: ReuseRule) -> str:
    """A component as users read it: its name, and the tokens that its rule looks back on."""
    if isinstance(rule, Window):
        return f"{name}({rule.lookback_tokens + 1})"
    return f"{name}({rule.chunk_tokens})" if isinstance(rule, Chunk) else name


def default_threads() -> int:
    """Torch's own choice, but 1 on one or two cores.

    There two threads wait for each other, and spin, as soon as anything else runs: the same work then
    takes many times the CPU time.
    """
    return torch.get_num_threads() if (os.cpu_count() or 1) > 2 else 1


def pick_device(name: str) -> torch.device:
    """The device asked for; `auto` takes CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def longest_sequence(layout: ModelLayout, config: EngineConfig) -> int:
    """Most tokens of a sequence: the model's limit, or the lower one that was set."""
    limit = layout.max_model_tokens or DEFAULT_MODEL_TOKENS
    return min(limit, config.max_model_tokens) if config.max_model_tokens else limit


def eos_tokens(model: Any) -> tuple[int, ...]:
    """Ids that end a text, from the generation settings or the config."""
    ids = getattr(model.generation_config, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (int(ids),)


def model_fingerprint(model: Any) -> str:
    """Identity of a model for namespaces: its config, and every weight's name, shape, type and bytes.

    All bytes, since a store outlives the process: of two models that differ in a single weight neither may
    reuse the other's values. Cost: SHA-256 over the weights, about a second a gigabyte.
    """
    digest = hashlib.sha256(model.config.to_json_string(use_diff=False).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tuple(weight.shape)}:{weight.dtype}:".encode())
        flat = weight.detach().contiguous().reshape(-1)
        for part in flat.split(FINGERPRINT_STEP):
            digest.update(part.cpu().view(torch.uint8).numpy())
    return digest.hexdigest()
