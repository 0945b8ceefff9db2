"""The Rust core: the operations of `PythonCore`, with the same results, from `crates/`."""

from __future__ import annotations

from collections.abc import Sequence

from graftline._core import Tree
from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, ReuseRule, Window
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.policies import EvictionPolicy, as_policy, is_built_in
from graftline.tree.protocol import check_session_limits, check_specs

USE_PYTHON = "use the Python core, which takes any rule and any policy: core='python'"
TOKENS_MAX = 2**63 - 1
"""No tree holds as many tokens: a longer window or chunk is as good as this."""


def rule_row(name: str, rule: ReuseRule) -> tuple[str, str, int]:
    """A component as the Rust core takes it: its name, the kind of its rule, the rule's tokens.

    Raises:
        ConfigError: a rule of one's own; a subclass of a known rule counts as one, since it may differ.
    """
    kind = type(rule)
    if kind is Full:
        return name, "full", 0
    if kind is Checkpoint:
        return name, "checkpoint", 0
    if kind is Window:
        assert isinstance(rule, Window)
        return name, "window", min(rule.lookback_tokens, TOKENS_MAX)
    if kind is Chunk:
        assert isinstance(rule, Chunk)
        return name, "chunk", min(rule.chunk_tokens, TOKENS_MAX)
    raise ConfigError(f"component '{name}': the Rust core does not know the rule {rule!r}", hint=USE_PYTHON)


class RustCore(Tree):
    """A tree core in Rust; `PythonCore` says what its operations do.

    Several threads may call `match` while one thread owns the tree and changes it.

    Args:
        specs: the components, in the order in which they are reported.
        page_tokens: tokens a page.
        policy: order of eviction, or the text that `make_policy` takes; least recently used by default. An
            object says which one is wanted, and is not asked itself.
        record_events: whether `take_events` has something to give.
        tier: where the values lie; only what events and sizes say depends on it.
        session_ttl_s: a session idle for longer is closed (rule S-2).
        max_sessions: when one more is opened, the one idle longest is closed.

    Raises:
        ConfigError: no component, two of one name, a page of less than one token, a limit that leaves no
            session, or a rule or policy that only the Python core takes.
    """

    name: str = "rust"
    specs: tuple[ComponentSpec, ...]
    page_tokens: int

    def __new__(  # noqa: D102  (see the class)
        cls,
        specs: Sequence[ComponentSpec],
        *,
        page_tokens: int,
        policy: EvictionPolicy | str | None = None,
        record_events: bool = False,
        tier: Tier = Tier.DEVICE,
        session_ttl_s: float = 3600.0,
        max_sessions: int = 100_000,
    ) -> RustCore:
        check_specs(specs, page_tokens)
        check_session_limits(session_ttl_s, max_sessions)
        if not is_built_in(policy):
            raise ConfigError(f"the Rust core does not know the policy {policy!r}", hint=USE_PYTHON)
        rows = [rule_row(spec.name, spec.rule) for spec in specs]
        core = super().__new__(
            cls,
            rows,
            page_tokens,
            as_policy(policy).text,
            record_events,
            int(tier),
            session_ttl_s=session_ttl_s,
            max_sessions=max_sessions,
        )
        core.specs = tuple(specs)
        core.page_tokens = page_tokens
        return core
