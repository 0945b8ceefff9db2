"""Orders of eviction by name."""

from __future__ import annotations

import re

from graftline.errors import ConfigError
from graftline.policies.base import EvictionPolicy
from graftline.policies.cost import Cost
from graftline.policies.gittins import Gittins
from graftline.policies.lfu import Lfu
from graftline.policies.lru import Lru
from graftline.policies.priority import Priority
from graftline.policies.session import Session
from graftline.policies.slru import Slru

POLICIES = ("lru", "lfu", "slru", "priority", "session", "cost", "gittins")
PLAIN: dict[str, type[EvictionPolicy]] = {
    "lru": Lru,
    "priority": Priority,
    "cost": Cost,
    "gittins": Gittins,
}
COUNTED: dict[str, type[Lfu] | type[Slru]] = {"lfu": Lfu, "slru": Slru}
FORM = re.compile(r"([a-z]+)(?:\((.+)\))?")
HINT = (
    "choose lru, lfu, lfu(ticks), slru, slru(uses), priority, cost, gittins, session or session(one of these)"
)


def make_policy(text: str) -> EvictionPolicy:
    """A new policy: `lru`, `lfu`, `lfu(ticks)`, `slru`, `slru(uses)`, `priority`, `cost`, `gittins`,
    `session` or `session(base)`; the base of `session` is `lru` where none is told.

    Raises:
        ConfigError: another text, or a number that the policy cannot take.
    """
    form = FORM.fullmatch(text.strip())
    name, argument = form.groups() if form else ("", None)
    if name == "session":
        base = make_policy("lru" if argument is None else argument)
        if not isinstance(base, Session):
            return Session(base)
    elif argument is None and name in PLAIN:
        return PLAIN[name]()
    elif name in COUNTED:
        if argument is None:
            return COUNTED[name]()
        if re.fullmatch(r"[0-9]{1,18}", argument):
            return COUNTED[name](int(argument))
    raise ConfigError(f"unknown order of eviction '{text}'", hint=HINT)


def as_policy(policy: EvictionPolicy | str | None) -> EvictionPolicy:
    """A policy as settings give it; least recently used for None."""
    if isinstance(policy, EvictionPolicy):
        return policy
    return make_policy(policy or "lru")


def is_built_in(policy: EvictionPolicy | str | None) -> bool:
    """Whether the Rust core knows a policy; a subclass counts as one's own, since it may differ."""
    if not isinstance(policy, EvictionPolicy):
        return True
    if type(policy) is Session:
        return is_built_in(policy.base)
    return type(policy) in (*PLAIN.values(), *COUNTED.values())
