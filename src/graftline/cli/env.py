"""`graftline env`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from graftline import __version__
from graftline.cache.cores import has_rust
from graftline.cli.options import Json
from graftline.cli.output import data, json_data

PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "fastapi", "uvicorn", "pydantic"),
    *("prometheus-client", "cyclopts"),
)


def env(*, json: Json = False) -> int:
    """Shows versions, processor, accelerator and tree core: what a report of a fault should have."""
    found = dict(_environment())
    if json:
        json_data(found)
        return 0
    for name, value in found.items():
        data(f"{name:18} {value}")
    return 0


def _environment() -> Iterator[tuple[str, Any]]:
    yield "graftline", __version__
    yield "python", platform.python_version()
    yield "platform", platform.platform()
    yield "cpu", _cpu_name()
    yield "cpu_count", os.cpu_count()
    for package in PACKAGES:
        yield package, _version(package)
    yield from _torch()
    yield "core", "rust" if has_rust() else "python"


def _torch() -> Iterator[tuple[str, Any]]:
    try:
        import torch  # noqa: PLC0415  the command line works without it
    except ImportError:
        return
    yield "torch_threads", torch.get_num_threads()
    yield "cuda", torch.version.cuda if torch.cuda.is_available() else "none"
    for i in range(torch.cuda.device_count()):
        yield f"cuda_{i}", torch.cuda.get_device_name(i)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _cpu_name() -> str:
    """The processor's name; `platform.processor` has none on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
