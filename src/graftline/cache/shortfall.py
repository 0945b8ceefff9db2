"""What a tier below the device had of a prompt and the request did not get, with the reason (rule H-9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graftline.plan import Tier

NOT_IN_TIME = "not in time"
NOT_ASKED = "not asked in time"
LEFT_AGAIN = "left again"
TOO_MANY_KEYS = "too many keys"


def worst_fault(faults: Iterable[str], default: str = "") -> str:
    """One of the reasons of stores: rather why one failed than that it failed before."""
    return min(faults, key=lambda fault: (fault == "left alone", fault), default=default)


@dataclass(frozen=True, slots=True)
class Reach:
    """How deep the tiers down to one reach in a prompt, and why that was not brought up.

    Attributes:
        tier: the lowest of these tiers.
        reached_tokens: their deepest boundary; None when the tier was not asked, or did not answer.
        reason: why the move was given up; empty when it was done.
    """

    tier: Tier
    reached_tokens: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One tier's share of what a request could have reused and did not.

    Attributes:
        tier: which one.
        reached_tokens: deepest boundary over it and the tiers above; None when that is not known.
        lost_tokens: how much deeper that is than what was reused and than the tiers above it reach; None
            when that is not known.
        reason: why it was not brought up.
    """

    tier: Tier
    reached_tokens: int | None
    lost_tokens: int | None
    reason: str


def shortfalls(
    reaches: Iterable[Reach | None], reused_tokens: int, limit_tokens: int
) -> tuple[Shortfall, ...]:
    """What each tier cost a request, the upper ones first; nothing for what cost nothing.

    Args:
        reaches: what was asked of the tiers below; None stands for nothing.
        reused_tokens: what the request reuses.
        limit_tokens: deepest boundary that it may reuse (rule M-3).
    """
    found, above = [], reused_tokens
    for reach in sorted((reach for reach in reaches if reach), key=lambda reach: reach.tier):
        depth = reach.reached_tokens
        if depth is None and above < limit_tokens:
            found.append(Shortfall(reach.tier, None, None, reach.reason))
        elif depth is not None and depth > above:
            found.append(Shortfall(reach.tier, depth, depth - above, reach.reason or LEFT_AGAIN))
            above = depth
    return tuple(found)
