"""Installs a rival into a virtual environment of its own; nothing of it is a dependency of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

FOLDER_VARIABLE = "GRAFTLINE_RIVALS"
WHEEL = "sglang==0.5.23"
REQUIREMENTS = Path(__file__).with_name("sglang-requirements.txt")


def rival_python(root: Path) -> Path:
    """The interpreter of the rival's environment, which is made when it is missing or out of date.

    The environment lies in the folder that `GRAFTLINE_RIVALS` names, else in `out/rivals`; it takes about
    6 GB, and the first call needs a package registry.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE) or root / "out" / "rivals")
    wanted = f"{WHEEL}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    environment, done = folder / "sglang", folder / "sglang.installed"
    python = environment / "bin" / "python"
    if python.exists() and done.exists() and done.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {WHEEL} into {environment}", file=sys.stderr)
    done.unlink(missing_ok=True)
    venv.create(environment, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
    subprocess.run([*pip, "--no-deps", WHEEL], check=True)
    done.write_text(wanted, encoding="utf-8")
    return python
