"""Which tree core keeps the books, by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, Window
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.policies import EvictionPolicy, is_built_in
from graftline.tree import PythonCore, TreeCore

CORES = ("auto", "python", "rust")
RULES_OF_RUST = (Full, Window, Chunk, Checkpoint)


def has_rust() -> bool:
    """Whether the compiled core is installed."""
    return find_spec("graftline._core") is not None


def make_core(
    name: str,
    specs: Sequence[ComponentSpec],
    *,
    page_tokens: int,
    policy: EvictionPolicy | str | None = None,
    record_events: bool = False,
    tier: Tier = Tier.DEVICE,
    session_ttl_s: float = 3600.0,
    max_sessions: int = 100_000,
) -> TreeCore:
    """A tree core.

    Args:
        name: `rust`, `python`, or `auto`: the Rust core where it is installed, unless a rule or a
            policy of one's own asks for the Python core.
        policy: order of eviction, or the text that `make_policy` takes; least recently used by default.
        record_events, tier, session_ttl_s, max_sessions: as `PythonCore` tells.

    Raises:
        ConfigError: an unknown name, a core that is not installed, or what the core cannot take.
    """
    if name not in CORES:
        raise ConfigError(f"unknown core '{name}'", hint=f"choose one of {', '.join(CORES)}")
    if name == "auto":
        name = "rust" if has_rust() and suits_rust(specs, policy) else "python"
    if name == "rust" and not has_rust():
        raise ConfigError(
            "the Rust core is not installed", hint="install graftline with a Rust toolchain, or core='python'"
        )
    core_type = PythonCore if name == "python" else import_module("graftline.tree.rust").RustCore
    core: TreeCore = core_type(
        specs,
        page_tokens=page_tokens,
        policy=policy,
        record_events=record_events,
        tier=tier,
        session_ttl_s=session_ttl_s,
        max_sessions=max_sessions,
    )
    return core


def suits_rust(specs: Sequence[ComponentSpec], policy: EvictionPolicy | str | None) -> bool:
    """Whether the Rust core knows the rules and the policy."""
    return all(type(spec.rule) in RULES_OF_RUST for spec in specs) and is_built_in(policy)
