"""Which boundaries of a request get windows and checkpoints.

A checkpoint is as large as thousands of cached tokens, so it matters which boundaries get one. Each kind
serves someone else: `replay` an exact repeat, `end` whoever goes on where the prompt ended while its answer
is still being computed, `answer` the next turn of a conversation, `branch` the next prompt that leaves a
shared path where this one did, `marks` whoever the caller knows of, and a grid anybody, at a price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graftline.errors import ConfigError

KINDS = ("replay", "end", "answer", "branch", "marks")


@dataclass(frozen=True, slots=True)
class Placement:
    """Boundaries that are kept; rules C-5 and C-6.

    Attributes:
        replay: the last boundary before the prompt's end.
        end: the end of the prompt's last whole page, as soon as it is computed.
        answer: the last whole page of prompt and answer, when the request ends.
        branch: where the prompt leaves a known path.
        marks: the last page boundary before each mark of the caller.
        grid_tokens: each multiple of so many tokens inside the prompt, rounded to pages; 0 for none.
        newest: of the states that a session's requests kept for itself (`replay`, `end`, `answer`) only so
            many stay, the deepest, when a request ends (rule C-13); 0 for all.
    """

    replay: bool = True
    end: bool = True
    answer: bool = True
    branch: bool = True
    marks: bool = True
    grid_tokens: int = 0
    newest: int = 0

    def __post_init__(self) -> None:
        for name in ("grid_tokens", "newest"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must not be negative")

    def plan(
        self,
        page_tokens: int,
        prompt_tokens: int,
        reused_tokens: int,
        branch_tokens: int,
        marks: Sequence[int],
    ) -> tuple[tuple[int, ...], int, set[int]]:
        """`stops`, `held_back` and `for_others` of one request."""
        place = page_tokens, prompt_tokens
        return (
            self.stops(*place, reused_tokens, branch_tokens, marks),
            self.held_back(*place, branch_tokens, marks),
            self.for_others(*place, branch_tokens, marks),
        )

    def stops(
        self,
        page_tokens: int,
        prompt_tokens: int,
        reused_tokens: int,
        branch_tokens: int,
        marks: Sequence[int],
    ) -> tuple[int, ...]:
        """Boundaries at which the prompt's computation pauses, in tokens, ascending; may be empty."""
        wanted = self._kept(page_tokens, prompt_tokens, branch_tokens, marks)
        if self.answer:
            wanted.add(prompt_tokens // page_tokens * page_tokens)
        return tuple(sorted(stop for stop in wanted if stop > reused_tokens))

    def held_back(
        self, page_tokens: int, prompt_tokens: int, branch_tokens: int, marks: Sequence[int]
    ) -> int:
        """The stop at which nothing is put into the tree: the request holds its state there by itself, until
        one behind it takes its place or the request ends. 0 for none."""
        whole = prompt_tokens // page_tokens * page_tokens
        return 0 if whole in self._kept(page_tokens, prompt_tokens, branch_tokens, marks) else whole

    def for_others(
        self, page_tokens: int, prompt_tokens: int, branch_tokens: int, marks: Sequence[int]
    ) -> set[int]:
        """Boundaries that are not the session's alone: branch point, marks and grid; rule C-13."""
        shared = replace(self, replay=False, end=False, answer=False)
        return shared._kept(page_tokens, prompt_tokens, branch_tokens, marks)

    def _kept(
        self, page_tokens: int, prompt_tokens: int, branch_tokens: int, marks: Sequence[int]
    ) -> set[int]:
        """Boundaries that are put into the tree as soon as they are computed."""
        whole = prompt_tokens // page_tokens * page_tokens
        grid = self.grid_pages(page_tokens) * page_tokens
        wanted = set(range(0, whole + 1, grid)) if grid else set()
        if self.replay:
            wanted.add((prompt_tokens - 1) // page_tokens * page_tokens)
        if self.end:
            wanted.add(whole)
        if self.branch:
            wanted.add(branch_tokens)
        if self.marks:
            wanted |= {mark // page_tokens * page_tokens for mark in marks}
        return wanted

    def grid_pages(self, page_tokens: int) -> int:
        """The grid in whole pages; 0 for none."""
        return max(1, round(self.grid_tokens / page_tokens)) if self.grid_tokens else 0


EVERYWHERE = Placement()


def parse_placement(text: str) -> Placement:
    """Reads kinds separated by commas: `replay,end,answer,branch,marks,grid:1024,newest:2`.

    No other kinds are kept.

    Raises:
        ConfigError: it reads otherwise.
    """
    found = Placement(replay=False, end=False, answer=False, branch=False, marks=False)
    for part in filter(None, (item.strip() for item in text.split(","))):
        kind, colon, number = part.partition(":")
        if kind == "grid" and number.isdecimal() and int(number) > 0:
            found = replace(found, grid_tokens=int(number))
        elif kind == "newest" and number.isdecimal() and int(number) > 0:
            found = replace(found, newest=int(number))
        elif kind in KINDS and not colon:
            found = replace(found, **{kind: True})
        else:
            raise ConfigError(
                f"placement '{text}': '{part}' is no kind of boundary",
                hint=f"{', '.join(KINDS)}, grid:TOKENS and newest:COUNT, separated by commas",
            )
    return found
