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
class Planned:
    """Boundaries of one request, in tokens.

    Attributes:
        stops: at which something is kept while the prompt is computed, ascending; may be empty.
        held_back: the stop at which nothing is put into the tree: the request holds its state there by
            itself, until one behind it takes its place or the request ends. 0 for none.
        for_others: those that are not the session's alone: branch point, marks and grid (rule C-13).
    """

    stops: tuple[int, ...]
    held_back: int
    for_others: set[int]


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
    ) -> Planned:
        """The boundaries of one request."""
        whole = prompt_tokens // page_tokens * page_tokens
        for_others = self._for_others(page_tokens, whole, branch_tokens, marks)
        kept = set(for_others)
        if self.replay:
            kept.add((prompt_tokens - 1) // page_tokens * page_tokens)
        if self.end:
            kept.add(whole)
        wanted = kept | {whole} if self.answer else kept
        stops = tuple(sorted(stop for stop in wanted if stop > reused_tokens))
        return Planned(stops, 0 if whole in kept else whole, for_others)

    def _for_others(self, page_tokens: int, whole: int, branch_tokens: int, marks: Sequence[int]) -> set[int]:
        grid = self.grid_pages(page_tokens) * page_tokens
        wanted = set(range(0, whole + 1, grid)) if grid else set()
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
