"""`graftline config` and `graftline env`."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from graftline import __version__
from graftline.cli.options import ServeConfig, shown
from graftline.cli.output import data, json_data, table
from graftline.cli.sources import DEFAULT, PREFIX

PACKAGES = (
    *("torch", "transformers", "tokenizers", "safetensors", "numpy", "fastapi", "uvicorn", "pydantic"),
    *("prometheus-client", "cyclopts"),
)


def list_config(model: str, options: ServeConfig, origins: Mapping[str, str], *, as_json: bool) -> int:
    """Prints all settings of a server with their origins; API keys are counted, not shown."""
    rows = [("--model", model), *_settings(options)]
    if as_json:
        json_data(
            {
                name.removeprefix("--"): {"value": shown(name, value), "origin": origins.get(name, DEFAULT)}
                for name, value in rows
            }
        )
        return 0
    table(
        [
            (name, shown(name, value), origins.get(name, DEFAULT), PREFIX + _upper(name))
            for name, value in rows
        ],
        ("setting", "value", "origin", "environment"),
    )
    return 0


def _settings(node: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(node):
        value = getattr(node, field.name)
        if is_dataclass(value):
            yield from _settings(value)
        else:
            yield "--" + field.name.replace("_", "-"), value


def _upper(name: str) -> str:
    return name.removeprefix("--").replace("-", "_").upper()


def list_environment(*, as_json: bool) -> int:
    """Prints what a report of a fault should have."""
    found = dict(_environment())
    if as_json:
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
    yield "core", "python"


def _torch() -> Iterator[tuple[str, Any]]:
    try:
        import torch
    except ImportError:  # the command line works without it
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
