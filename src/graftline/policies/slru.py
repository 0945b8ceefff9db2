"""What was used only once leaves first.

After segmented LRU (Karedla, Love, Wherry: "Caching strategies to improve disk system performance",
IEEE Computer 27(3), 1994). The protected segment has no size of its own here: a scan passes through the
other one, and when that is empty the protected runs leave by recency.
"""

from __future__ import annotations

from graftline.errors import ConfigError
from graftline.policies.base import EvictionPolicy, Usage


class Slru(EvictionPolicy):
    """Recency in two segments.

    Args:
        uses_protected: uses from which on a run is protected.

    Raises:
        ConfigError: fewer than one use.
    """

    name = "slru"
    USES_PROTECTED = 2

    def __init__(self, uses_protected: int = USES_PROTECTED) -> None:
        if uses_protected < 1:
            raise ConfigError(f"runs are protected from {uses_protected} uses on, it must be at least 1")
        self.uses_protected = uses_protected

    @property
    def text(self) -> str:
        """`slru`, or `slru(uses)`."""
        uses = self.uses_protected
        return self.name if uses == self.USES_PROTECTED else f"{self.name}({uses})"

    def level(self, usage: Usage) -> int:
        """1 when protected."""
        return int(usage.uses >= self.uses_protected)

    def rank(self, usage: Usage) -> float:
        """The last tick."""
        return float(usage.last_tick)
