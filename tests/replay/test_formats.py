"""Every format is read as it is meant, and faults name file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from graftline.errors import ConfigError
from graftline.replay.formats import FileTrace, detect
from graftline.replay.lines import INTERNED, TraceError
from graftline.replay.requests import ReplayRequest
from replay.support import write_lines

CHAT = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "What is a radix tree?"}]


def read(tmp_path: Path, *lines: object, **options) -> list[ReplayRequest]:
    return list(FileTrace(write_lines(tmp_path / "t.jsonl", *lines), **options))


def test_mooncake(tmp_path: Path) -> None:
    line = {"timestamp": 3000, "input_length": 1200, "output_length": 52, "hash_ids": [7, 8, 9]}
    first, second = read(tmp_path, line, {**line, "session_id": "s", "block_size": 400})
    assert (first.arrival_s, first.prompt_tokens, first.answer_tokens) == (3.0, 1200, 52)
    assert (first.unit_tokens, first.prompt_ids.tolist(), first.answer_ids.tolist()) == (512, [7, 8, 9], [])
    assert (second.unit_tokens, second.session) == (400, "s")


def test_block_ids_may_be_strings_or_large(tmp_path: Path) -> None:
    a, b = read(
        tmp_path,
        {"input_length": 1536, "hash_ids": ["x", "y", 2**63]},
        {"input_length": 1024, "hash_ids": ["x", "z"]},
    )
    assert a.prompt_ids[0] == b.prompt_ids[0] == INTERNED
    assert len({*a.prompt_ids.tolist(), *b.prompt_ids.tolist()}) == 4


def test_runs_and_what_the_answer_adds(tmp_path: Path) -> None:
    line = {"session_id": "s", "input_length": 83, "block_size": 16, "hash_runs": [[0, 3], [50, 2]]}
    first, second = read(tmp_path, line, {**line, "insert_runs": [[0, 3], [50, 2], [70, 3]]})
    assert first.prompt_ids.tolist() == [0, 1, 2, 50, 51]
    assert second.answer_ids.tolist() == [70, 71, 72]
    assert [first.turn, second.turn] == [0, 1]


def test_token_ids(tmp_path: Path) -> None:
    (only,) = read(tmp_path, {"tokens": [5, 6, 7], "answer": [8], "timestamp": 1500})
    assert (only.unit_tokens, only.prompt_ids.tolist(), only.answer_ids.tolist()) == (1, [5, 6, 7], [8])
    assert (only.prompt_tokens, only.answer_tokens, only.arrival_s) == (3, 1, 1.5)


def openai_shapes() -> list[dict]:
    body = {"model": "m", "messages": CHAT}
    answer = {"choices": [{"message": {"role": "assistant", "content": "A trie with runs."}}]}
    return [
        {**body, "response": answer},
        {
            "custom_id": "1",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body,
            "response": {"body": answer},
        },
        {"request": body, "response": answer},
    ]


@pytest.mark.parametrize("shape", range(3))
def test_openai_requests(tmp_path: Path, shape: int) -> None:
    """The next turn's prompt begins with this one's prompt and answer."""
    followed = [
        *CHAT,
        {"role": "assistant", "content": "A trie with runs."},
        {"role": "user", "content": "Why?"},
    ]
    first, second = read(tmp_path, openai_shapes()[shape], {"messages": followed})
    path = [*first.prompt_ids.tolist(), *first.answer_ids.tolist()]
    assert len(first.answer_ids) > 3
    assert second.prompt_ids.tolist()[: len(path)] == path


def test_openai_prompts_of_text_and_of_token_ids(tmp_path: Path) -> None:
    text, ids = read(
        tmp_path,
        {"prompt": "abcdefghi", "created": "2026-01-01T00:00:10+00:00"},
        {"prompt": [1, 2, 3], "created": 1767225600000},
    )
    assert (text.prompt_tokens, len(text.prompt_ids), ids.prompt_ids.tolist()) == (3, 2, [1, 2, 3])
    assert text.arrival_s - ids.arrival_s == 10.0


def test_two_messages_are_never_taken_for_one(tmp_path: Path) -> None:
    one = {"messages": [{"role": "user", "content": "ab"}, {"role": "user", "content": "cd"}]}
    other = {"messages": [{"role": "user", "content": "abcd"}]}
    a, b = read(tmp_path, one, other)
    assert a.prompt_ids.tolist() != b.prompt_ids.tolist()


def test_conversations_of_text(tmp_path: Path) -> None:
    pool = [
        *CHAT,
        {"role": "assistant", "content": "A trie with runs."},
        {"role": "user", "content": "Why so?"},
    ]
    line = {
        "session_id": "s",
        "t0_ms": 5000,
        "messages": pool,
        "requests": [
            {"t_ms": 0, "prompt": [[0, 2]], "out": 2},
            {"t_ms": 900, "think_ms": 400, "prompt": [[0, 4]]},
        ],
    }
    first, second = read(tmp_path, line)
    path = [*first.prompt_ids.tolist(), *first.answer_ids.tolist()]
    assert second.prompt_ids.tolist()[: len(path)] == path
    assert (second.arrival_s, second.think_s, second.turn) == (5.9, 0.4, 1)


def test_ids_of_conversations_are_their_own(tmp_path: Path) -> None:
    line = {"block_size": 64, "requests": [{"t_ms": 0, "input_length": 130, "hash_runs": [[1, 2]]}] * 2}
    a, b, c, _ = read(tmp_path, line, line)
    assert a.prompt_ids.tolist() == b.prompt_ids.tolist()
    assert not set(a.prompt_ids.tolist()) & set(c.prompt_ids.tolist())


def test_prompts_of_named_parts(tmp_path: Path) -> None:
    line = {"timestamp": 0, "components": {"system": [[4, 3]], "passages": [[9, 2], [4, 1]]}}
    (only,) = read(tmp_path, line)
    ids = only.prompt_ids.tolist()
    assert (len(set(ids[:5])), ids[5], only.prompt_tokens) == (5, ids[0], 6)


def test_lengths_alone_never_repeat(tmp_path: Path) -> None:
    a, b = read(tmp_path, {"timestamp": 0, "input_length": 100}, {"timestamp": 1, "input_length": 100})
    assert len(a.prompt_ids) == 6
    assert not set(a.prompt_ids.tolist()) & set(b.prompt_ids.tolist())


def test_gzip_limits_and_empty_prompts(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    lines = [{"input_length": length, "hash_ids": []} for length in (5, 0, 6, 7)]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    trace = FileTrace(path)
    assert [request.prompt_tokens for request in trace] == [5, 6, 7]
    assert trace.empty_prompts == 1
    assert [request.prompt_tokens for request in FileTrace(path, requests_max=2)] == [5, 6]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"hash_ids": [1]}, "'input_length' is missing"),
        ({"input_length": 4, "hash_ids": [1, 2]}, "2 blocks of 512 tokens for a prompt of 4"),
        ({"input_length": 600, "hash_ids": [1, None]}, "neither numbers nor strings"),
        ({"input_length": -1, "hash_ids": []}, "'input_length' is -1, not a count"),
        ({"input_length": 600, "hash_ids": "12"}, "not a list"),
        ({"input_length": 9, "hash_ids": [], "timestamp": "soon"}, "'timestamp' is 'soon', not a time"),
        ({"input_length": 32, "hash_runs": [[1, 2]]}, "'block_size' is missing"),
        ({"input_length": 32, "block_size": 0, "hash_runs": [[1, 2]]}, "'block_size' is 0"),
        ({"input_length": 32, "block_size": 16, "hash_runs": [[1, 2, 3]]}, "not a list of"),
        ({"input_length": 32, "block_size": 16, "hash_runs": [[1, 2], [3]]}, "not a list of"),
        (
            {"input_length": 32, "block_size": 16, "hash_runs": [[1, 2]], "insert_runs": [[1, 1]]},
            "does not continue",
        ),
        ({"tokens": [1, -2]}, "no token id"),
        ({"messages": "hi"}, "'messages' is 'hi', not a list"),
        ({"components": {"a": [[1, -1]]}}, "out of range"),
        ({"messages": CHAT, "requests": [{"prompt": [[0, 3]]}]}, "outside the pool of 2"),
        ({"who": 1}, "no format is known with the fields who"),
    ],
)
def test_faults_name_file_and_line(tmp_path: Path, line: dict, told: str) -> None:
    with pytest.raises(TraceError, match=told) as caught:
        read(tmp_path, line)
    assert f"{tmp_path / 't.jsonl'}:1: " in str(caught.value)


def test_a_fault_in_a_later_line_names_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"tokens": [1]}\n\n{"tokens": [1]\n')
    with pytest.raises(TraceError, match=r"t.jsonl:3: is no JSON"):
        list(FileTrace(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        FileTrace(tmp_path / "absent.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(TraceError, match="is empty"):
        FileTrace(tmp_path / "empty.jsonl")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b'{"tokens": [1]}\n' * 10000)[:-20])
    with pytest.raises(TraceError, match="cannot be read"):
        list(FileTrace(cut, "tokens"))
    only_empty = write_lines(tmp_path / "e.jsonl", {"tokens": []})
    with pytest.raises(TraceError, match="has no request"):
        list(FileTrace(only_empty))


def test_a_format_is_named_or_found(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", {"input_length": 40, "hash_ids": [1]})
    assert detect(path) == "mooncake"
    (only,) = FileTrace(path, "lengths")
    assert len(only.prompt_ids) == 2
    with pytest.raises(ConfigError, match="unknown trace format 'csv'"):
        FileTrace(path, "csv")
