"""The command line, run in this process: settings and their origins, listings, errors."""

from __future__ import annotations

import io
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_support import Live

from graftline import __version__
from graftline.cli.app import main
from graftline.cli.options import (
    FLAG_OF,
    NetworkOptions,
    ServeConfig,
    TierOptions,
    default_name,
    in_flags,
    parse_bytes,
    parse_slots,
)
from graftline.cli.output import human_bytes
from graftline.engine import EngineConfig

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line; gives exit status, stdout and stderr."""
    for name in [name for name in os.environ if name.startswith("GRAFTLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    return call


def settings_of(run: Run, *arguments: str) -> dict[str, Any]:
    status, out, err = run("config", *arguments, "--json")
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"{__version__}\n", "")
    status, out, _ = run("--help")
    assert status == 0
    assert all(command in out for command in ("serve", "chat", "make-model", "config", "env"))
    status, out, _ = run("serve", "--help")
    assert "Examples" in out
    for flag in settings_of(run):
        assert f"--{flag}" in out, flag


def test_without_anything_all_is_default(run: Run) -> None:
    found = settings_of(run)
    assert {setting["origin"] for setting in found.values()} == {"default"}
    assert found["port"]["value"] == 8000
    assert found["host"]["value"] == "127.0.0.1"


def test_flags_before_environment_before_file_before_defaults(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "g.toml"
    file.write_text(
        "port = 1\npage_size = 2\nmax-num-seqs = 3\nprefix-cache = false\n[slots]\nfull = 5\nswa = 6\n"
    )
    monkeypatch.setenv("GRAFTLINE_PORT", "10")
    monkeypatch.setenv("GRAFTLINE_PAGE_SIZE", "20")
    monkeypatch.setenv("GRAFTLINE_CONFIG", str(file))
    found = settings_of(run, "model", "--port", "100")
    assert found["model"] == {"value": "model", "origin": "flag"}
    assert found["port"] == {"value": 100, "origin": "flag"}
    assert found["page-size"] == {"value": 20, "origin": "environment"}
    assert found["max-num-seqs"] == {"value": 3, "origin": str(file)}
    assert found["prefix-cache"] == {"value": False, "origin": str(file)}
    assert found["slots"] == {"value": {"full": 5, "swa": 6}, "origin": str(file)}
    assert found["max-model-len"]["origin"] == "default"


def test_every_setting_has_an_environment_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = run("config")
    names = [line.split()[-1] for line in out.splitlines()[1:]]
    for name in names:
        monkeypatch.setenv(name, {"GRAFTLINE_SLOTS": "full=1"}.get(name, "1"))
    for name, choice in {
        "DTYPE": "float32",
        "CORE": "rust",
        "EVICTION_POLICY": "lru",
        "CHECKPOINTS": "answer",
        "WRITE_POLICY": "write_back",
        "PREFETCH_POLICY": "wait",
        "LOG_LEVEL": "debug",
    }.items():
        monkeypatch.setenv(f"GRAFTLINE_{name}", choice)
    found = settings_of(run)
    assert {setting["origin"] for setting in found.values()} == {"environment"}


def test_keys_are_never_shown(run: Run) -> None:
    for more in ([], ["--json"]):
        _, out, _ = run(
            "config", "--api-key", "hush-1", "--api-key", "hush-2", "--admin-api-key", "hush-3", *more
        )
        assert "hush" not in out
        assert "(2 set)" in out


def test_the_two_times_of_stopping_are_set_apart() -> None:
    network, tiers = NetworkOptions(drain_timeout=3.0), TierOptions(store_drain_timeout=7.0)
    options = ServeConfig(network=network, tiers=tiers)
    assert options.server_config("m").drain_s == 3.0
    assert options.engine_config().drain_s == 7.0


WRONG = [
    (["serve"], "MODEL"),
    (["serve", "m", "--page-szie", "3"], "--page-size"),
    (["serve", "m", "--port", "many"], "--port"),
    (["serve", "m", "--port", "70000"], "70000"),
    (["serve", "m", "--dtype", "int3"], "float32"),
    (["serve", "m", "--device-memory", "much"], "4GiB"),
    (["serve", "m", "--slots", "full"], "COMPONENT=SLOTS"),
    (["serve", "m", "--slots", "full=8", "--slots", "state=8"], "--slots"),
    (["serve", "m", "--host", "0.0.0.0"], "API key"),
    (["serve", "m", "--api-key-file", "absent.txt"], "absent.txt"),
    (["serve", "m", "--config", "absent.toml"], "absent.toml"),
    (["serve", "m", "--chunk-tokens", "4096"], "--max-num-batched-tokens"),
    (["serve", "m", "--page-size", "0"], "--page-size is 0"),
    (["serve", "m", "--store", "file:/tmp/s"], "give --host-memory or --host-ratio"),
    (["serve", "m", "--write-policy", "often"], "write_through"),
    (["serve", "m", "--eviction-policy", "mru"], "gittins"),
    (["serve", "m", "--checkpoints", "here"], "grid:TOKENS"),
    (["serve", "m", "--tenant-share", "0"], "--tenant-share is 0"),
    (["serve", "m", "--prefetch-timeout", "0"], "--prefetch-timeout is 0"),
    (["serve", "m", "--store-drain-timeout", "-1"], "--store-drain-timeout is -1"),
    (["srve"], "serve"),
    (["make-model"], "--list"),
    (["make-model", "inklink", "somewhere"], "inkling"),
    (["make-model", "inkling", "somewhere", "--set", "layers"], "NAME=NUMBER"),
    (["make-model", "inkling", "somewhere", "--set", "layer=3"], "layers"),
]


def test_flags_stand_for_settings_that_the_engine_has(run: Run) -> None:
    _, helped, _ = run("serve", "--help")
    for setting, flag in FLAG_OF.items():
        assert setting in {field.name for field in fields(EngineConfig)}
        assert f"{flag} " in helped
    assert in_flags("host_bytes and other_names are 3") == "--host-memory and other_names are 3"


@pytest.mark.parametrize(("arguments", "named"), WRONG)
def test_wrong_usage(run: Run, arguments: list[str], named: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert named.lower() in err.lower()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "'port'"),
        ("serve = 1", "'serve'"),
        ("config = 'x'", "'config'"),
        ("port = 'x'", "port"),
        ("port = [", "toml"),
    ],
)
def test_a_file_with_something_wrong(run: Run, tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    status, _, err = run("config", "--config", str(file))
    assert status == 2
    assert named in err


def test_a_misspelt_environment_name_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_PAGE_SZIE", "3")
    status, _, err = run("config")
    assert status == 0
    assert "GRAFTLINE_PAGE_SZIE" in err
    assert "GRAFTLINE_PAGE_SIZE" in err


def test_key_files(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst\n\n  second  \n")
    options = ServeConfig(network=NetworkOptions(api_key=("zeroth",), api_key_file=file))
    assert options.server_config("m").api_keys == ("zeroth", "first", "second")
    status, _, err = run("serve", "m", "--api-key-file", str(tmp_path))
    assert status == 2
    assert "cannot be read" in err
    file.write_text("# none\n")
    status, _, err = run("serve", "m", "--api-key-file", str(file))
    assert status == 2
    assert "has no key" in err


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("1000", 1000), ("4GiB", 4 << 30), ("1.5 kib", 1536), ("2MB", 2_000_000), ("7B", 7)],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e3", "4 XiB", "4GiBs"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        parse_bytes(text)


@given(st.integers(0, 1 << 50))
def test_sizes_come_back_about_as_large(count: int) -> None:
    assert parse_bytes(human_bytes(count)) == pytest.approx(count, rel=0.06)


def test_slots() -> None:
    assert parse_slots("full=1, swa = 2,") == {"full": 1, "swa": 2}


def test_a_local_model_is_named_after_its_folder(tmp_path: Path) -> None:
    assert default_name(str(tmp_path)) == tmp_path.name
    assert default_name("org/model") == "org/model"


def test_a_model_is_made(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("make-model", "inkling", str(tmp_path / "m"), "--set", "layers=8", "--json")
    made = json.loads(out)
    assert status == 0
    assert Path(made["path"]) == tmp_path / "m"
    assert json.loads((tmp_path / "m" / "config.json").read_text())["num_hidden_layers"] == 8
    status, _, err = run("make-model", "inkling", str(tmp_path / "m"))
    assert status == 2
    assert "not empty" in err
    assert run("make-model", "inkling", str(tmp_path / "m"), "--overwrite")[0] == 0


def test_families_are_listed(run: Run) -> None:
    status, out, _ = run("make-model", "--list", "--json")
    names = [family["family"] for family in json.loads(out)]
    assert status == 0
    assert "inkling" in names
    plain = run("make-model", "--list")[1].splitlines()
    assert [line.split()[0] for line in plain[1:]] == names


def test_env(run: Run) -> None:
    status, out, _ = run("env", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["graftline"] == __version__
    assert {"python", "cpu", "torch", "transformers", "cuda", "core"} <= found.keys()
    plain = run("env")[1].splitlines()
    assert [line.split()[0] for line in plain] == list(found)


def test_chat_asks_and_tells_what_was_reused(run: Run, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "What is a radix tree, in plain words?"
    said = [question, "", "And a page of tokens?", "/new", question, "/exit", "never asked"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(said)))
    options = ["--url", live.url, "--max-tokens", "6", "--temperature", "0", "--system", "chat test"]
    status, out, err = run("chat", *options, "--session-id", "c")
    assert status == 0
    reports = [line for line in err.splitlines() if line.startswith("[prompt")]
    assert ["reused 0" in report for report in reports] == [True, False, False]
    assert "(forgotten)" in err
    status, again, _ = run("chat", question, *options)
    assert status == 0
    assert again
    assert out.startswith(again)
    assert out.endswith(again)


def test_chat_without_a_server(run: Run) -> None:
    status, out, err = run("chat", "hello", "--url", "http://127.0.0.1:1")
    assert (status, out) == (1, "")
    assert "graftline serve" in err


def test_chat_with_a_wrong_key(run: Run, keyed: Live) -> None:
    status, _, err = run("chat", "hello", "--url", keyed.url, "--api-key", "wrong")
    assert status == 1
    assert "API key" in err
