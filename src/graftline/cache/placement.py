"""Which boundaries of a request get windows and checkpoints.

A checkpoint is as large as thousands of cached tokens, so it matters which boundaries get one. Each kind
serves someone else: `replay` an exact repeat, `end` a prompt that goes on where this one ended, `answer` the
next turn of a conversation, `branch` the next prompt that leaves a shared path where this one did, `marks`
whoever the caller knows of, and a grid anybody, at a price.
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
        end: the end of the prompt's last whole page.
        answer: the end of the answer's last whole page.
        branch: where the prompt leaves a known path.
        marks: the last page boundary before each mark of the caller.
        grid_tokens: each multiple of so many tokens inside the prompt, rounded to pages; 0 for none.
    """

    replay: bool = True
    end: bool = True
    answer: bool = True
    branch: bool = True
    marks: bool = True
    grid_tokens: int = 0

    def __post_init__(self) -> None:
        if self.grid_tokens < 0:
            raise ConfigError(f"grid_tokens is {self.grid_tokens}, it must not be negative")

    def stops(
        self,
        page_tokens: int,
        prompt_tokens: int,
        reused_tokens: int,
        branch_tokens: int,
        marks: Sequence[int],
    ) -> tuple[int, ...]:
        """Boundaries of a prompt at which its computation pauses, in tokens, ascending; may be empty."""
        whole = prompt_tokens // page_tokens * page_tokens
        wanted = set(range(0, whole + 1, self._grid(page_tokens))) if self.grid_tokens else set()
        if self.replay:
            wanted.add((prompt_tokens - 1) // page_tokens * page_tokens)
        if self.end:
            wanted.add(whole)
        if self.branch:
            wanted.add(branch_tokens)
        if self.marks:
            wanted |= {mark // page_tokens * page_tokens for mark in marks}
        return tuple(sorted(stop for stop in wanted if stop > reused_tokens))

    def _grid(self, page_tokens: int) -> int:
        """The grid in whole pages, at least one."""
        return max(1, round(self.grid_tokens / page_tokens)) * page_tokens


EVERYWHERE = Placement()


def parse_placement(text: str) -> Placement:
    """Reads kinds separated by commas: `replay,end,answer,branch,marks,grid:1024`; no others are kept.

    Raises:
        ConfigError: it reads otherwise.
    """
    found = Placement(replay=False, end=False, answer=False, branch=False, marks=False)
    for part in filter(None, (item.strip() for item in text.split(","))):
        kind, colon, number = part.partition(":")
        if kind == "grid" and number.isdecimal() and int(number) > 0:
            found = replace(found, grid_tokens=int(number))
        elif kind in KINDS and not colon:
            found = replace(found, **{kind: True})
        else:
            raise ConfigError(
                f"placement '{text}': '{part}' is no kind of boundary",
                hint=f"{', '.join(KINDS)} and grid:TOKENS, separated by commas",
            )
    return found
