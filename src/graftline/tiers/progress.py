"""How far a load has come, for those who read what it brings while it comes (rule H-10)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from graftline.errors import GraftlineError

Tensor = tuple[str, str]
"""Component, and the name of one tensor of its pool."""


class LoadBrokenError(GraftlineError):
    """A copy failed after what it was to bring had been given out."""


class Progress:
    """Which tensors of a load are there. Told by the copy thread, asked by the owner's.

    Args:
        order: the tensors in the order in which they come.
        head: how many of them must be there before anybody may begin to read.
    """

    def __init__(self, order: Sequence[Tensor], head: int) -> None:
        self._places = {tensor: place for place, tensor in enumerate(order)}
        self._head = head
        self._arrived = 0
        self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    @property
    def readable(self) -> bool:
        """Whether one may begin to read, waiting for each tensor."""
        return self._arrived >= self._head and self._error is None

    def advance(self) -> None:
        """The next tensor is there."""
        with self._changed:
            self._arrived += 1
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come; told once, whatever happened."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def wait(self, tensor: Tensor) -> None:
        """Returns when a tensor is there; at once for one that does not come with this load.

        Raises:
            LoadBrokenError: it will not come.
        """
        place = self._places.get(tensor)
        if place is None or place < self._arrived:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._ended or place < self._arrived)
            if place >= self._arrived:
                raise LoadBrokenError(f"'{tensor[1]}' of '{tensor[0]}' did not come") from self._error


class Gate:
    """The loads that are read while they come. Owned by the thread that reads."""

    def __init__(self) -> None:
        self._open: tuple[Progress, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether somebody may have to wait."""
        return bool(self._open)

    def add(self, progress: Progress) -> None:
        """From now on readers wait for it."""
        self._open += (progress,)

    def remove(self, progress: Progress) -> None:
        """It has ended."""
        self._open = tuple(other for other in self._open if other is not progress)

    def wait(self, component: str, tensor: str) -> None:
        """Returns when a tensor may be read.

        Raises:
            LoadBrokenError: a load that should have filled slots of it failed.
        """
        for progress in self._open:
            progress.wait((component, tensor))
