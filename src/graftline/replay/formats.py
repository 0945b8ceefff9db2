"""Readers of traces, one a format.

A reader turns lines into requests as they come and keeps nothing but small tables.

| format | known by | content |
|---|---|---|
| `mooncake` | `hash_ids` | an id a block (512 tokens unless `block_size` differs), the last may be partial |
| `runs` | `hash_runs` | ids of whole blocks as runs `[first, count]`; `insert_runs`: with the answer |
| `tokens` | `tokens` | token ids of the prompt, and of the answer in `answer` |
| `openai` | `messages`, `prompt`, `body` or `request` | a request as sent to an OpenAI-compatible server |
| `sessions` | `requests` and `messages` | a conversation a line: a pool of messages and ranges of it |
| `session-runs` | `requests` with `hash_runs` | a conversation a line, block ids of its own |
| `parts` | `components` | a prompt put together of named parts, `[[id, tokens], ...]` |
| `lengths` | `input_length` alone | no content: nothing is ever found again |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from graftline.errors import ConfigError
from graftline.replay.lines import OWN_IDS, IdTable, Line, TraceError, id_runs, read_lines
from graftline.replay.requests import NO_IDS, Ids, ReplayRequest
from graftline.replay.texts import openai_request, session_requests

MOONCAKE_BLOCK_TOKENS = 512
MS = 1e-3
Reader = Callable[[Line, IdTable], Iterator[ReplayRequest]]


class FileTrace:
    """A trace file; each pass reads it again.

    Args:
        path: JSON lines, plain or gzipped.
        format: one of `FORMATS`; `auto` looks at the first line.
        requests_max: stop after so many; 0 for all.

    Attributes:
        empty_prompts: requests without a token, left out of the last pass.

    Raises:
        TraceError: the file cannot be read, or its format is not known.
        ConfigError: an unknown name of a format.
    """

    def __init__(self, path: Path, format: str = "auto", *, requests_max: int = 0) -> None:
        if format != "auto" and format not in FORMATS:
            raise ConfigError(f"unknown trace format '{format}'", hint=f"choose one of {', '.join(FORMATS)}")
        self.path = path
        self.name = trace_name(path)
        self.format = detect(path) if format == "auto" else format
        self.requests_max = requests_max
        self.empty_prompts = 0

    def __iter__(self) -> Iterator[ReplayRequest]:
        requests = self._read()
        return islice(requests, self.requests_max) if self.requests_max else requests

    def _read(self) -> Iterator[ReplayRequest]:
        reader, table = FORMATS[self.format], IdTable()
        turns: dict[str, int] = {}
        found = False
        self.empty_prompts = 0
        for line in read_lines(self.path):
            for request in reader(line, table):
                if request.prompt_tokens == 0:
                    self.empty_prompts += 1
                    continue
                turn = turns.get(request.session, 0)
                turns[request.session] = turn + 1
                found = True
                yield replace(request, turn=turn) if turn else request
        if not found:
            raise TraceError(self.path, 0, "has no request")


def trace_name(path: Path) -> str:
    """The file's name without endings; a name that says little is preceded by its folder's."""
    stem = path.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json")
    return f"{path.parent.name}/{stem}" if stem.startswith(("trace", "requests", "sessions")) else stem


def detect(path: Path) -> str:
    """The format of a file, by the fields of its first line."""
    line = next(read_lines(path), None)
    if line is None:
        raise TraceError(path, 0, "is empty")
    fields = line.fields
    if "requests" in fields:
        return "sessions" if "messages" in fields else "session-runs"
    by_field = {
        "hash_ids": "mooncake",
        "hash_runs": "runs",
        "tokens": "tokens",
        "components": "parts",
        "messages": "openai",
        "prompt": "openai",
        "body": "openai",
        "request": "openai",
        "input_length": "lengths",
    }
    for name, format in by_field.items():
        if name in fields:
            return format
    raise line.fault(
        f"no format is known with the fields {', '.join(sorted(fields)[:8])}",
        hint=f"name one of the formats: {', '.join(FORMATS)}",
    )


def plain_request(line: Line, unit_tokens: int, prompt_ids: Ids, answer_ids: Ids) -> ReplayRequest:
    """A request whose line has the common fields: session_id, timestamp in ms, lengths."""
    ident = f"line {line.number}"
    return ReplayRequest(
        ident=ident,
        session=line.text("session_id", ident),
        turn=0,
        arrival_s=line.seconds("timestamp", unit_s=MS) or 0.0,
        think_s=line.seconds("think_ms", unit_s=MS, default=None),
        prompt_tokens=line.count("input_length"),
        answer_tokens=line.count("output_length", 0),
        unit_tokens=unit_tokens,
        prompt_ids=prompt_ids,
        answer_ids=answer_ids,
    )


def mooncake(line: Line, table: IdTable) -> Iterator[ReplayRequest]:
    """A line with `hash_ids`."""
    block_tokens = block_size(line, MOONCAKE_BLOCK_TOKENS)
    ids = table.ids(line, "hash_ids")
    prompt_tokens = line.count("input_length")
    if len(ids) > -(-prompt_tokens // block_tokens):
        raise line.fault(f"{len(ids)} blocks of {block_tokens} tokens for a prompt of {prompt_tokens}")
    yield plain_request(line, block_tokens, ids, NO_IDS)


def runs(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with `hash_runs`."""
    prompt_ids = id_runs(line, "hash_runs")
    answer_ids = NO_IDS
    if "insert_runs" in line.fields:
        inserted = id_runs(line, "insert_runs")
        if not np.array_equal(inserted[: len(prompt_ids)], prompt_ids):
            raise line.fault("'insert_runs' does not continue 'hash_runs'")
        answer_ids = inserted[len(prompt_ids) :]
    yield plain_request(line, block_size(line), prompt_ids, answer_ids)


def tokens(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with `tokens`."""
    prompt, answer = token_ids(line, "tokens"), token_ids(line, "answer")
    lengths = {"input_length": len(prompt), "output_length": len(answer)}
    yield plain_request(line.within({**line.fields, **lengths}), 1, prompt, answer)


def session_runs(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with a conversation whose block ids are its own."""
    block_tokens = block_size(line)
    session = line.text("session_id", f"line {line.number}")
    start_s = line.seconds("t0_ms", unit_s=MS) or 0.0
    for number, fields in enumerate(line.items("requests")):
        item = line.within(fields)
        shared: dict[str, Any] = {"session_id": session, **item.fields}
        request = plain_request(
            item.within(shared), block_tokens, id_runs(item, "hash_runs", line.number * OWN_IDS), NO_IDS
        )
        arrival_s = start_s + (item.seconds("t_ms", unit_s=MS) or 0.0)
        yield replace(request, ident=f"{request.ident}, request {number}", arrival_s=arrival_s)


def parts(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with `components`: token `i` of part `p` is always the same token."""
    pieces = []
    named = line.within(line.fields.get("components"))
    for name in named.fields:
        for part in named.items(name):
            if not (isinstance(part, list) and len(part) == 2 and all(type(n) is int for n in part)):
                raise line.fault(f"a part of '{name}' is {part!r}, not [id, tokens]")
            ident, count = part
            if not (0 <= ident < OWN_IDS // 2 and 0 <= count < OWN_IDS):
                raise line.fault(f"a part of '{name}' is {part!r}: out of range")
            pieces.append(np.arange(ident * OWN_IDS, ident * OWN_IDS + count, dtype=np.uint64))
    prompt = np.concatenate(pieces) if pieces else NO_IDS
    yield plain_request(line.within({**line.fields, "input_length": len(prompt)}), 1, prompt, NO_IDS)


def lengths(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line without content: every page is new."""
    block_tokens = block_size(line, 16)
    blocks = line.count("input_length") // block_tokens
    ids = np.uint64(line.number << 24) + np.arange(blocks, dtype=np.uint64)
    yield plain_request(line, block_tokens, ids, NO_IDS)


def openai(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with a request as sent to a server."""
    yield openai_request(line)


def sessions(line: Line, table: IdTable) -> Iterator[ReplayRequest]:  # noqa: ARG001
    """A line with a conversation as text."""
    return session_requests(line)


def block_size(line: Line, default: int | None = None) -> int:
    """Tokens a block."""
    size = line.count("block_size", default)
    if size == 0:
        raise line.fault("field 'block_size' is 0")
    return size


def token_ids(line: Line, name: str) -> Ids:
    """A list of token ids."""
    values = line.items(name)
    if not values:
        return NO_IDS
    if not all(type(value) is int and 0 <= value < 1 << 32 for value in values):
        raise line.fault(f"field '{name}' has something that is no token id")
    return np.array(values, dtype=np.uint64)


FORMATS: dict[str, Reader] = {
    "mooncake": mooncake,
    "runs": runs,
    "tokens": tokens,
    "openai": openai,
    "sessions": sessions,
    "session-runs": session_runs,
    "parts": parts,
    "lengths": lengths,
}
