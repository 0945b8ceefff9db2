"""When a request waits for another one that computes the same prefix (rule X-7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graftline.cache import CachedRequest
from graftline.key import Tokens

PATIENCE = 2
"""The leader may be at most this many times as far from the boundary as the follower itself would be."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a follower waits for: that its leader has computed a boundary, or is gone.

    Attributes:
        leader: the running request.
        boundary_tokens: where they part, at a page; the leader stops there.
        cached_tokens: what the follower could have reused when it began to wait.
    """

    leader: CachedRequest
    boundary_tokens: int
    cached_tokens: int

    @property
    def over(self) -> bool:
        """Whether the follower goes on."""
        return not self.leader.open or self.reached

    @property
    def reached(self) -> bool:
        """Whether the leader has computed what the follower waits for."""
        return self.leader.computed_tokens >= self.boundary_tokens


def find_wait(
    tokens: Tokens, cached_tokens: int, page_tokens: int, leaders: Iterable[CachedRequest]
) -> Wait | None:
    """The wait that saves the most tokens, or None when none saves a page at a fair price.

    Args:
        tokens: the follower's prompt.
        cached_tokens: what it could reuse now.
        page_tokens: tokens a page.
        leaders: running requests of its namespace that use the cache.
    """
    waits = []
    for leader in leaders:
        boundary = shared_boundary(tokens, leader, page_tokens)
        ahead, alone = boundary - leader.computed_tokens, boundary - cached_tokens
        if 0 < ahead <= PATIENCE * alone:
            waits.append((boundary, -ahead, Wait(leader, boundary, cached_tokens)))
    return max(waits, key=lambda wait: wait[:2])[2] if waits else None


def shared_boundary(tokens: Tokens, leader: CachedRequest, page_tokens: int) -> int:
    """Deepest boundary inside both prompts up to which their tokens are equal (rule M-3)."""
    shared = min(common_tokens(tokens, leader.tokens), len(tokens) - 1, leader.prompt_tokens)
    return shared // page_tokens * page_tokens


def common_tokens(one: Tokens, other: Tokens) -> int:
    """Length of the common prefix. Cost: O(1) when the first tokens differ."""
    count = min(len(one), len(other))
    if count == 0 or one[0] != other[0]:
        return 0
    differ = one[:count] != other[:count]
    first = int(differ.argmax())
    return first if differ[first] else count
