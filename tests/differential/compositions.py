"""What the machine is run on: component lists, page sizes, orders of eviction, and the cores under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, ReuseRule, Window
from graftline.plan import Tier
from graftline.policies import EvictionPolicy, Session, Usage, make_policy
from graftline.tree import PythonCore, TreeCore

SESSION_TTL_S = 50.0
MAX_SESSIONS = 3


class Half(ReuseRule):
    """A rule of one's own: a boundary needs the later half of its prefix."""

    refusal = "half not held"

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return boundary_pages // 2


class Stairs(ReuseRule):
    """A rule of one's own whose first page rises in steps of two pages and never reaches the boundary."""

    refusal = "stairs not held"

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return max(0, boundary_pages - 1) // 2 * 2


class OpenStart(ReuseRule):
    """Needs every page like `Full`, but does not claim to be prefix-closed: holes may come and heal."""

    def first_page(self, boundary_pages: int, page_tokens: int) -> int:
        return 0


def is_own(rule: ReuseRule) -> bool:
    """Whether only a core that takes any rule can take this one."""
    return type(rule) not in (Full, Window, Chunk, Checkpoint)


class FewestUses(EvictionPolicy):
    """Ranks by the count of uses, so that ranks of different runs tie and the tick decides (P-2)."""

    name = "fewest-uses"

    def rank(self, usage: Usage) -> float:
        return float(usage.uses)


class Everything(EvictionPolicy):
    """Ranks by all that a policy is told, learns from uses, and spares every second run once (P-4)."""

    name = "everything"

    def __init__(self) -> None:
        self.seen = 0.0

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        self.seen = self.seen / 2 + gap_ticks % 5 + gap_s
        usage.weight += self.seen

    def level(self, usage: Usage) -> int:
        return (usage.sessions + usage.priority) % 3

    def rank(self, usage: Usage) -> float:
        place = usage.start_page + 2 * usage.end_page + 3 * usage.children + 5 * usage.component
        return usage.weight + self.seen + place + usage.return_s + usage.last_s - usage.last_tick

    def rerank(self, usage: Usage, now_s: float, clock: int) -> float:
        return usage.rank + (now_s + clock) % 2 * 9


POLICIES = (
    "lru",
    "lfu(8)",
    "slru",
    "slru(3)",
    "priority",
    "cost",
    "session",
    "session(lfu(16))",
    "session(priority)",
    "session(cost)",
    "gittins",
    "session(gittins)",
)
"""Orders of eviction that every core has."""
OWN_POLICIES: dict[str, Callable[[], EvictionPolicy]] = {
    "fewest-uses": FewestUses,
    "everything": Everything,
    "session(everything)": lambda: Session(Everything()),
}
"""Those of one's own, which only the Python core takes."""


def policy_of(text: str) -> EvictionPolicy:
    """A new policy by its text."""
    return OWN_POLICIES[text]() if text in OWN_POLICIES else make_policy(text)


@dataclass(frozen=True)
class Composition:
    """One list of components on one page size."""

    name: str
    rules: dict[str, ReuseRule]
    page_tokens: int = 1
    tier: Tier = Tier.DEVICE

    @property
    def specs(self) -> tuple[ComponentSpec, ...]:
        return tuple(ComponentSpec(name, rule, slots=1 << 20) for name, rule in self.rules.items())

    @property
    def own(self) -> bool:
        """Whether a rule is one of those above."""
        return any(is_own(rule) for rule in self.rules.values())

    @property
    def policies(self) -> tuple[str, ...]:
        """Orders of eviction that suit the cores which take the rules."""
        return (*POLICIES, *OWN_POLICIES) if self.own else POLICIES


COMPOSITIONS = (
    Composition("full", {"full": Full()}),
    Composition("full-window", {"full": Full(), "swa": Window(3)}),
    Composition("full-long-window", {"full": Full(), "swa": Window(6)}),
    Composition("full-window-page2", {"full": Full(), "swa": Window(3)}, page_tokens=2, tier=Tier.HOST),
    Composition("full-window-smaller-than-page", {"full": Full(), "swa": Window(2)}, page_tokens=4),
    Composition("full-checkpoint", {"full": Full(), "state": Checkpoint()}),
    Composition("full-window-checkpoint", {"full": Full(), "swa": Window(2), "state": Checkpoint()}),
    Composition(
        "full-window-checkpoint-page2",
        {"full": Full(), "swa": Window(5), "state": Checkpoint()},
        page_tokens=2,
    ),
    Composition("two-windows", {"near": Window(1), "far": Window(4)}),
    Composition("full-two-windows", {"full": Full(), "near": Window(1), "far": Window(3)}),
    Composition("window", {"swa": Window(2)}),
    Composition("checkpoint", {"state": Checkpoint()}),
    Composition("two-checkpoints", {"a": Checkpoint(), "b": Checkpoint()}),
    Composition("full-chunk", {"full": Full(), "chunk": Chunk(3)}),
    Composition("full-chunk-off-the-page", {"full": Full(), "chunk": Chunk(10)}, page_tokens=4),
    Composition("chunk-window", {"chunk": Chunk(4), "swa": Window(3)}),
    Composition("chunk-checkpoint", {"chunk": Chunk(2), "state": Checkpoint()}),
    Composition("full-half", {"full": Full(), "half": Half()}),
    Composition("full-stairs-checkpoint", {"full": Full(), "stairs": Stairs(), "state": Checkpoint()}),
    Composition("stairs", {"stairs": Stairs()}, page_tokens=2),
    Composition("two-closed", {"keys": Full(), "latent": Full(), "swa": Window(2)}),
    Composition("open-start", {"open": OpenStart(), "swa": Window(1)}),
    Composition("empty-window", {"full": Full(), "swa": Window(0), "state": Checkpoint()}),
)


def core_types(*, own: bool = False) -> tuple[Callable[..., TreeCore], ...]:
    """Every core that there is: the Rust one where it was built, and where no rule or policy is one's own."""
    if own or find_spec("graftline._core") is None:
        return (PythonCore,)
    return PythonCore, import_module("graftline.tree.rust").RustCore


def cores_under_test(composition: Composition, policy: str) -> list[TreeCore]:
    """One of every core; all of them must do as the oracle does."""
    return [
        core_type(policy=policy_of(policy), record_events=True, **settings(composition))
        for core_type in core_types(own=composition.own)
    ]


def settings(composition: Composition) -> dict[str, Any]:
    """What the oracle and the cores are made with; few sessions, so that one closes for another."""
    return {
        "specs": composition.specs,
        "page_tokens": composition.page_tokens,
        "tier": composition.tier,
        "session_ttl_s": SESSION_TTL_S,
        "max_sessions": MAX_SESSIONS,
    }
