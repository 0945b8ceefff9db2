"""How much memory: the answer reaches the wish, what is smaller does not, and levels add up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App

from graftline.cli import plan as command
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.replay import FileTrace, PagedTrace, Setup, parse_composition, simulate
from graftline.replay.memory import MemoryAnswer, Wish, plan_memory
from replay.support import PAGE, random_trace, write_lines

SLOT_BYTES = {"full": 100, "swa": 40, "state": 1000}


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    lines = [
        {
            "session_id": paged.request.session,
            "input_length": paged.request.prompt_tokens,
            "block_size": PAGE,
            "hash_ids": paged.pages.tolist(),
        }
        for paged in random_trace(5, 150, depth=7)
        if paged.request.prompt_tokens
    ]
    return write_lines(tmp_path / "trace.jsonl", *lines)


def answer(path: Path, hit_rate: float, text: str = "full", **options) -> MemoryAnswer:
    composition = parse_composition(text)
    slot_bytes = {name: SLOT_BYTES[name] for name, _ in composition.rules}
    wish = Wish(composition, hit_rate, slot_bytes=slot_bytes, chunk_tokens=PAGE, **options)
    return plan_memory(PagedTrace(FileTrace(path)), wish)


def hit_rate(path: Path, text: str, slots: dict[str, int]) -> float:
    trace = PagedTrace(FileTrace(path))
    list(trace)
    setup = Setup(parse_composition(text), slots, trace.page_tokens, chunk_tokens=PAGE, slot_bytes=SLOT_BYTES)
    return simulate(trace, setup).hit_rate


def test_one_slot_less_does_not_reach_the_wish(trace_path: Path) -> None:
    found = answer(trace_path, 0.3, precision=0.001)
    (level,) = found.levels
    assert found.reached
    slots = level.slots["full"]
    assert level.hit_rate == hit_rate(trace_path, "full", {"full": slots}) >= 0.3
    assert hit_rate(trace_path, "full", {"full": slots - 1}) < 0.3
    assert level.level_bytes == 100 * slots
    assert found.optimum_slots is not None
    assert found.optimum_slots <= slots


@pytest.mark.parametrize("text", ["full+state", "full+swa:5", "full+swa:5+state"])
def test_the_pool_made_smaller_last_cannot_lose_a_slot(trace_path: Path, text: str) -> None:
    found = answer(trace_path, 0.25, text, precision=0.001)
    (level,) = found.levels
    assert hit_rate(trace_path, text, dict(level.slots)) == level.hit_rate >= 0.25
    rates = [
        hit_rate(trace_path, text, {**level.slots, name: count - 1})
        for name, count in level.slots.items()
        if count > found.curve[0].slots[name]  # else it is as small as one request allows
    ]
    assert min(rates) < 0.25
    for tried in found.curve[::5]:
        assert hit_rate(trace_path, text, dict(tried.slots)) == tried.hit_rate


def test_the_curve_of_one_component_goes_up_to_the_ceiling(trace_path: Path) -> None:
    found = answer(trace_path, 0.2)
    points = [tried for tried in found.curve if tried.on_curve]
    rates = [tried.hit_rate for tried in points]
    assert rates == sorted(rates)
    assert rates[-1] == found.ceiling == found.prefix_hit_rate
    assert len(points) == len({tuple(tried.slots.values()) for tried in points}) > 3


@pytest.mark.parametrize("text", ["full", "full+state"])
def test_a_wish_above_the_ceiling_is_told(trace_path: Path, text: str) -> None:
    found = answer(trace_path, 0.999, text)
    assert not found.reached
    assert found.levels == ()
    assert found.ceiling < 0.999
    at_ceiling = answer(trace_path, found.ceiling, text)
    assert at_ceiling.reached


def test_host_memory_is_asked_for_when_the_device_is_given(trace_path: Path) -> None:
    found = answer(trace_path, 0.3, given_bytes=(1500,))
    device, host = found.levels
    assert (device.tier, host.tier) == (Tier.DEVICE, Tier.HOST)
    assert device.level_bytes <= 1500 < host.level_bytes
    assert device.slots == {"full": 15}
    assert device.hit_rate == hit_rate(trace_path, "full", {"full": 15})
    # Nested levels of one prefix-closed component: the larger one decides.
    assert host.hit_rate == hit_rate(trace_path, "full", dict(host.slots)) >= 0.3
    assert (device.loaded_tokens + host.loaded_tokens) / found.prompt_tokens == pytest.approx(host.hit_rate)
    assert host.loaded_tokens > 0


def test_no_lower_level_is_asked_for_when_it_is_not_needed(trace_path: Path) -> None:
    found = answer(trace_path, 0.1, given_bytes=(30_000,))
    assert found.reached
    assert [level.tier for level in found.levels] == [Tier.DEVICE]
    assert found.curve == ()


def test_three_levels(trace_path: Path) -> None:
    found = answer(trace_path, 0.34, "full+state", given_bytes=(6_000, 12_000))
    assert [level.tier for level in found.levels] == [Tier.DEVICE, Tier.HOST, Tier.STORE]
    rates = [level.hit_rate for level in found.levels]
    assert rates == sorted(rates)
    total = sum(level.loaded_tokens for level in found.levels)
    assert total / found.prompt_tokens == pytest.approx(rates[-1])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hit_rate": 0.0}, "hit rate 0.0"),
        ({"hit_rate": 1.2}, "hit rate 1.2"),
        ({"precision": 0.0}, "precision 0.0"),
        ({"slot_bytes": {"swa": 3}}, "bytes are given for swa"),
        ({"slot_bytes": {"full": 0}}, "a slot of 0 bytes"),
        ({"given_bytes": (5,)}, "memory in bytes is given"),
        ({"slot_bytes": {"full": 4}, "given_bytes": (5, 5, 5)}, "3 levels are given"),
        ({"slot_bytes": {"full": 4}, "given_bytes": (5, 4)}, "cannot be smaller"),
    ],
)
def test_wishes_that_cannot_work_are_refused(options: dict, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Wish(**{"composition": parse_composition("full"), "hit_rate": 0.5, **options})


def test_memory_too_small_for_one_request_is_refused(trace_path: Path) -> None:
    with pytest.raises(ConfigError, match="10 bytes are too few"):
        answer(trace_path, 0.3, given_bytes=(10,))


def run(*arguments: object) -> int:
    app = App(result_action="return_value")
    app.command(command.plan)
    return int(app(["plan", *map(str, arguments)], exit_on_error=False))


def test_the_command_tells_json(trace_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--components", "full+state", "--token-bytes", "10", "--state-bytes", "4KB", "--json")
    assert run(trace_path, "--hit-rate", "0.25", *options, "--device-memory", "10KB") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["slot_bytes"] == {"full": 10 * PAGE, "state": 4000}
    assert [level["tier"] for level in told["levels"]] == ["device", "host"]
    assert told["levels"][-1]["hit_rate"] >= told["wanted_hit_rate"] == 0.25
    sizes = [tried["level_bytes"] for tried in told["curve"]]
    assert sizes == sorted(sizes)
    assert np.isclose(
        told["working_set_bytes"],
        sum(count * told["slot_bytes"][name] for name, count in told["working_set_slots"].items()),
    )


def test_the_command_tells_a_table_and_a_verdict(
    trace_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(trace_path, "--hit-rate", "0.3") == 0
    out, err = capsys.readouterr()
    assert "device" in out
    assert "30.0% is reached with full" in err
    assert run(trace_path, "--hit-rate", "0.99") == 1
    assert "cannot be reached: an endless cache reaches" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--host-memory", "1GB"), "without --device-memory"),
        (("--state-bytes", "4"), "bytes of component 'full' are not told"),
        (("--token-bytes", "swa=4"), "--token-bytes names 'swa'"),
    ],
)
def test_the_command_refuses_what_cannot_work(trace_path: Path, options: tuple, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(trace_path, "--hit-rate", "0.3", *options)


@pytest.mark.parametrize("text", ["=4", "full=x", "4 apples"])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no size|not COMPONENT"):
        command.parse_sizes(text)
    assert command.parse_sizes("full=1KiB, swa=2") == {"full": 1024, "swa": 2}
    assert command.parse_sizes("3KB") == {"": 3000}
