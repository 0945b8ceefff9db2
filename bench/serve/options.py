"""Options that the serving benchmarks share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def shared_options(
    description: str | None, families: Sequence[str], preset: str = "bench"
) -> argparse.ArgumentParser:
    """A command line with models, seed and folder; the benchmark adds its own options.

    Args:
        description: the benchmark's docstring.
        families: the models that it takes by default.
        preset: their size by default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", default=list(families), metavar="FAMILY")
    parser.add_argument("--preset", default=preset, help="demo: 6-7 M parameters; bench: 30-40 M")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for models and results")
    return parser
