"""The check of instruction counts fails when it must."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bench.core.instructions import BASELINE, ROOT, per_call, regressions

PROFILE = """\
fn=instructions::main
12 40
cfn=instructions::op_lease
calls=2 7
12 300
cfn=core::ptr::drop_in_place<Lease>
calls=2 9
13 50
cfn=instructions::op_lease
calls=1 7
15 90
"""


def baseline() -> dict[str, int]:
    counts: dict[str, int] = json.loads(BASELINE.read_text(encoding="utf-8"))["instructions"]
    return counts


def test_calls_of_one_operation_are_added_up() -> None:
    assert per_call(PROFILE.splitlines()) == {"lease": 130}


def test_a_tenth_more_is_let_pass_and_eleven_hundredths_are_not() -> None:
    before = baseline()
    assert len(before) > 8
    assert regressions(before, before) == []
    assert regressions({name: round(spent * 1.09) for name, spent in before.items()}, before) == []
    worse = regressions({name: round(spent * 1.11) for name, spent in before.items()}, before)
    assert len(worse) == len(before)
    assert all("11.0% more" in line for line in worse)


def test_one_operation_is_enough() -> None:
    before = baseline()
    (told,) = regressions({**before, "lease": round(before["lease"] * 1.2)}, before)
    assert told.startswith("lease takes")


def test_operations_that_come_or_go_ask_for_a_new_baseline() -> None:
    told = regressions({"new": 1}, {"old": 1})
    assert [line.split()[0] for line in told] == ["new", "old"]
    assert all("--renew" in line for line in told)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_the_command_fails_on_counts_that_are_above_the_baseline(tmp_path: Path) -> None:
    counted = tmp_path / "counted.json"
    command = [sys.executable, "-m", "bench.core.instructions", "--check", "--baseline", str(counted)]
    measured = subprocess.run(
        [*command[:3], "--json", str(counted)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert measured.returncode == 0, measured.stderr
    content = json.loads(counted.read_text(encoding="utf-8"))
    content["instructions"]["insert_turn"] = int(content["instructions"]["insert_turn"] / 1.11)
    counted.write_text(json.dumps(content), encoding="utf-8")
    worse = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert worse.returncode == 1
    assert worse.stderr.startswith("insert_turn takes")
