"""`graftline config`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from graftline.cli.options import DEFAULTS, ConfigFile, Json, Options, shown
from graftline.cli.output import json_data, table
from graftline.cli.sources import DEFAULT, env_name, origins, warn_unknown_environment


def config(
    model: str = "", *, config: ConfigFile = None, options: Options = DEFAULTS, json: Json = False
) -> int:
    """Shows the settings that serve would have with the same flags, and where each comes from.

    API keys are counted, not shown.

    Args:
        model: As for serve.
    """
    del config  # read by `sources.from_file`
    warn_unknown_environment()
    rows = [
        (name, shown(name, value), origins.of.get(name, DEFAULT))
        for name, value in [("--model", model), *_settings(options)]
    ]
    if json:
        json_data(
            {name.removeprefix("--"): {"value": value, "origin": origin} for name, value, origin in rows}
        )
    else:
        table([(*row, env_name(row[0])) for row in rows], ("setting", "value", "origin", "environment"))
    return 0


def _settings(node: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(node):
        value = getattr(node, field.name)
        if is_dataclass(value):
            yield from _settings(value)
        else:
            yield "--" + field.name.replace("_", "-"), value
