"""Least frequently used leaves first, where a use counts less the longer it is ago.

After LRFU (Lee, Choi, Kim, Noh, Min, Cho, Kim: "LRFU: a spectrum of policies that subsumes the least
recently used and least frequently used policies", IEEE Transactions on Computers 50(12), 2001): each use
counts one and halves within a half-life. Compared at any later moment, such counts keep their order, so
`log2(count) + last tick / half-life` is a rank that stays valid. Halving is a shift, and within a
half-life both the decay and the logarithm are straight lines, which fit each other exactly.
"""

from __future__ import annotations

from graftline.errors import ConfigError
from graftline.policies.base import EvictionPolicy, Usage

HALVINGS_MAX = 64
"""After so many half-lives nothing is left of a count."""


class Lfu(EvictionPolicy):
    """Count of uses with decay.

    Args:
        half_life_ticks: uses of any run until a use counts half.

    Raises:
        ConfigError: a half-life of less than one tick.
    """

    name = "lfu"
    HALF_LIFE_TICKS = 1 << 14

    def __init__(self, half_life_ticks: int = HALF_LIFE_TICKS) -> None:
        if half_life_ticks < 1:
            raise ConfigError(f"half-life is {half_life_ticks} ticks, it must be at least 1")
        self.half_life_ticks = half_life_ticks

    @property
    def text(self) -> str:
        """`lfu`, or `lfu(ticks)`."""
        ticks = self.half_life_ticks
        return self.name if ticks == self.HALF_LIFE_TICKS else f"{self.name}({ticks})"

    def touch(self, usage: Usage, gap_ticks: int, gap_s: float) -> None:
        """The weight is the decayed count."""
        usage.weight = self.decayed(usage.weight, gap_ticks) + 1.0

    def decayed(self, count: float, ticks: int) -> float:
        """What is left of a count."""
        halvings, rest = divmod(ticks, self.half_life_ticks)
        if halvings >= HALVINGS_MAX:
            return 0.0
        return count / float(1 << halvings) * (1.0 - rest / (2.0 * self.half_life_ticks))

    def rank(self, usage: Usage) -> float:
        """Half-lives of the last use and of its count."""
        return usage.last_tick / self.half_life_ticks + log2_by_lines(usage.weight)


def log2_by_lines(count: float) -> float:
    """Logarithm to the base 2, by straight lines between powers of 2; less than 0 below 1."""
    whole = 0.0
    while count >= 2.0:
        count /= 2.0
        whole += 1.0
    return whole + (count - 1.0)
