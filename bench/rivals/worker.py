"""A process that measures cells for one side: a line of JSON in, a line of JSON out.

    python -m bench.rivals.worker ours
    OTHER_VENV/bin/python -m bench.rivals.worker sglang

What libraries print goes to the standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys

from bench.rivals.cells import Cell

SIDES = {"ours": "bench.rivals.ours", "sglang": "bench.rivals.sglang"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    side = importlib.import_module(SIDES[sys.argv[1]])
    print(json.dumps(side.versions()), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = _answer(side, Cell(**asked["cell"]), asked["core"])
        print(json.dumps(answer), file=answers, flush=True)


def _answer(side: object, cell: Cell, core: str) -> dict[str, object]:
    gc.collect()
    try:
        return {"figures": side.measure(cell, core)}  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001  the table says that it failed, and with which words
        return {"absent": f"{type(error).__name__}: {error}".splitlines()[0][:160]}


if __name__ == "__main__":
    main()
