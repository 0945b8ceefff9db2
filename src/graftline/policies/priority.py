"""What only unimportant sessions used leaves first, by recency among equals.

The order `priority` of SGLang's radix cache. The hint is the session's (rule S-1).
"""

from __future__ import annotations

from graftline.policies.base import EvictionPolicy, Usage


class Priority(EvictionPolicy):
    """The largest hint, then recency."""

    name = "priority"

    def level(self, usage: Usage) -> int:
        """The hint."""
        return usage.priority

    def rank(self, usage: Usage) -> float:
        """The last tick."""
        return float(usage.last_tick)
