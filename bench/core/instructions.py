"""Instructions that the Rust core takes for its main operations, counted by valgrind.

    python -m bench.core.instructions                 shows them beside the baseline
    python -m bench.core.instructions --check         fails when one takes a tenth more than that
    python -m bench.core.instructions --renew         makes what is there now the baseline

Unlike times they do not move with the load of the machine. `crates/core/examples/instructions.rs` has the
operations; each function of it whose name begins with `op_` is one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BASELINE = Path(__file__).with_name("instructions.json")
EXAMPLE = "instructions"
PREFIX = f"cfn={EXAMPLE}::op_"
TOLERANCE = 0.10
# Newer vector instructions are chosen by the processor at hand; without them every machine counts alike.
PLAIN_LIBC = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-ERMS,-FSRM,-AVX512F,-AVX512VL,-AVX512BW"
RENEW = "python -m bench.core.instructions --renew"


def count() -> dict[str, int]:
    """Instructions of one call, by operation."""
    build = ["cargo", "build", "--quiet", "--release", "--package", "graftline-core", "--example", EXAMPLE]
    subprocess.run(build, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        command = ["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]
        command += [f"--callgrind-out-file={profile}", str(target / "release" / "examples" / EXAMPLE)]
        environment = {**os.environ, "GLIBC_TUNABLES": PLAIN_LIBC}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"valgrind failed:\n{done.stderr}")
        return per_call(profile.read_text(encoding="utf-8").splitlines())


def per_call(profile: Iterable[str]) -> dict[str, int]:
    """Inclusive instructions of a call of each `op_` function, from callgrind's file.

    A call is three lines there: `cfn=NAME`, `calls=COUNT PLACE`, `PLACE INSTRUCTIONS`.
    """
    calls: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    name, expected = "", ""
    for line in profile:
        if line.startswith("cfn="):
            name, expected = (line.removeprefix(PREFIX), "calls") if line.startswith(PREFIX) else ("", "")
        elif expected == "calls":
            calls[name] += int(line.removeprefix("calls=").split()[0])
            expected = "cost"
        elif expected == "cost":
            spent[name] += int(line.split()[-1])
            expected = ""
    return {name: round(spent[name] / calls[name]) for name in sorted(calls)}


def regressions(now: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """What got worse: operations above the tolerance, without a baseline, or gone."""
    found = []
    for name in sorted({*now, *before}):
        if name not in before:
            found.append(f"{name} has no baseline; `{RENEW}` writes it")
        elif name not in now:
            found.append(f"{name} is in the baseline, but is not measured any more; `{RENEW}` removes it")
        elif now[name] > before[name] * (1 + TOLERANCE):
            more = now[name] / before[name] - 1
            found.append(f"{name} takes {now[name]:,} instructions, {more:.1%} more than {before[name]:,}")
    return found


def show(now: Mapping[str, int], before: Mapping[str, int]) -> None:
    width = max(len(name) for name in now)
    print(f"{'operation':{width}} {'instructions':>14} {'baseline':>14} {'change':>8}")
    for name, spent in now.items():
        old = before.get(name)
        change = f"{spent / old - 1:+.1%}" if old else "-"
        print(f"{name:{width}} {spent:>14,} {old or 0:>14,} {change:>8}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail at a tenth more than the baseline")
    parser.add_argument("--renew", action="store_true", help="write the baseline")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("!!! INSTRUCTION COUNTS ARE NOT CHECKED: valgrind is not installed !!!", file=sys.stderr)
        sys.exit(0 if arguments.check else 1)
    now = count()
    before: dict[str, int] = {}
    if arguments.baseline.exists():
        before = json.loads(arguments.baseline.read_text(encoding="utf-8"))["instructions"]
    show(now, before)
    result = {"rustc": rustc(), "instructions": now}
    for path in ([arguments.json] if arguments.json else []) + (
        [arguments.baseline] if arguments.renew else []
    ):
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    worse = regressions(now, before) if arguments.check else []
    if worse:
        sys.exit("\n".join([*worse, f"if it is meant to be so: `{RENEW}`"]))


def rustc() -> str:
    return subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
