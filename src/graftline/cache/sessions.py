"""Who will come back: sessions over all tiers of one cache (rules S-1 and on)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.cache.level import Level
from graftline.plan import Lease


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """When sessions end by themselves.

    Attributes:
        ttl_s: a session idle for longer is closed.
        most: when one more is opened, the one idle longest is closed.
        infer: whether requests that name no session get one that is inferred from their prompts (rule S-9);
            at most half of all are of this kind.
    """

    ttl_s: float = 3600.0
    most: int = 100_000
    infer: bool = True


@dataclass(frozen=True, slots=True)
class Session:
    """Whose request it is.

    Attributes:
        name: stable over the turns of one conversation.
        priority: larger is kept longer, under policies that look at it.
        expected_return_s: when the next turn is expected, from the end of this one.
    """

    name: str
    priority: int = 0
    expected_return_s: float | None = None


class OpenSession:
    """A session as one request has it: opened when it begins, moved forward when it completes.

    A session that was closed meanwhile stays closed, in every tier (rule S-5).
    """

    def __init__(self, levels: Sequence[Level], session: Session) -> None:
        self.name = session.name
        self._handles = [
            (
                level,
                level.core.open_session(
                    session.name, priority=session.priority, expected_return_s=session.expected_return_s
                ),
            )
            for level in levels
        ]

    def register(self, level: Level, lease: Lease, answer_tokens: int | None = None) -> bool:
        """The session's next turn will begin at a lease of one tier; False when it was closed meanwhile.

        Args:
            answer_tokens: length of the answer that ended there; None where it is not known.
        """
        handles = (handle for own, handle in self._handles if own is level)
        return any(level.core.register(handle, lease, answer_tokens=answer_tokens) for handle in handles)
