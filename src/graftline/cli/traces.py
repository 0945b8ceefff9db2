"""What the commands that read a trace have in common: how it is read, and a bar while it is replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from graftline.cli.output import note
from graftline.errors import ConfigError
from graftline.replay.formats import FileTrace
from graftline.replay.report import MissingExtraError
from graftline.replay.simulate import Progress
from graftline.replay.sweep import Start, unseen
from graftline.replay.tokens import PagedTrace

Switch = Annotated[bool, Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the trace is read."""

    format: str = "auto"
    """mooncake, runs, tokens, openai, sessions, session-runs, parts, lengths; auto asks the first line."""
    limit: int = 0
    """Stop after so many requests; 0 for all."""
    page_size: int = 0
    """Tokens a page; 0 takes the trace's block, or 16 for text and token ids."""
    unnamed_answers: Switch = False
    """Let answers take pages even where the trace does not name their content."""

    def open(self, path: Path) -> PagedTrace:
        """The trace in pages.

        Raises:
            TraceError: it cannot be read, or its format is not known.
            ConfigError: a setting that cannot work.
        """
        if self.limit < 0:
            raise ConfigError(f"--limit is {self.limit}, it must not be negative")
        source = FileTrace(path, self.format, requests_max=self.limit)
        return PagedTrace(source, self.page_size, unnamed_answers=self.unnamed_answers)


READING = Reading()


def note_empty(trace: PagedTrace) -> None:
    """Says on stderr what the last pass left out."""
    if trace.empty_prompts:
        note(f"left out {trace.empty_prompts:,} requests without a token")


@contextmanager
def progress_bars() -> Iterator[Start]:
    """A bar on stderr, a line a run; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield unseen
        return
    try:
        from rich.console import Console  # noqa: PLC0415  an extra
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
        from rich.progress import Progress as Bars  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("rich", "cli") from error
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True)) as bars:

        def start(name: str, requests: int) -> Progress:
            for task in bars.task_ids:
                bars.stop_task(task)
            task = bars.add_task(name, total=requests or None)
            return lambda count: bars.advance(task, count)

        yield start
