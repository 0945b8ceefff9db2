"""Where settings come from: flags, then the environment, then a file, then defaults."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection, CycloptsError
from cyclopts.config import Dict, Env

from graftline.cli.output import note

PREFIX = "GRAFTLINE_"
FLAG, ENVIRONMENT, DEFAULT = "flag", "environment", "default"

environment = Env(PREFIX, command=False)


@dataclass(slots=True)
class Origins:
    """Remembers where each setting came from; the last of the sources, so that it sees them all.

    Attributes:
        of: origin by flag name; settings that are not in it have their default.
        env_names: names that the command knows.
    """

    of: dict[str, str] = field(default_factory=dict)
    env_names: tuple[str, ...] = ()

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Reads the sources off the arguments."""
        del app, commands
        self.of.clear()
        self.env_names = tuple(env_name(name) for name in _names(arguments))
        for argument in arguments:
            if argument.tokens:
                source = argument.tokens[0].source
                self.of[argument.name] = {"cli": FLAG, "env": ENVIRONMENT}.get(source, source)


origins = Origins()


def from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Takes settings from the TOML file that `--config` names; its keys are the flags' names."""
    named = [argument for argument in arguments if argument.name == "--config" and argument.tokens]
    if not named:
        return
    path = Path(named[0].tokens[0].value).expanduser()
    settings = {key.replace("_", "-"): value for key, value in _read(path).items()}
    known = [name.removeprefix("--") for name in _names(arguments) if name != "--config"]
    for key in settings:
        if key not in known:
            raise CycloptsError(msg=f"{path}: there is no setting '{key}'.{nearest(key, known)}")
    if isinstance(settings.get("slots"), Mapping):
        settings["slots"] = ",".join(f"{name}={count}" for name, count in settings["slots"].items())
    Dict(settings, source=str(path), use_commands_as_keys=False)(app, commands, arguments)


def warn_unknown_environment() -> None:
    """Names environment variables that look like ours and aren't: a misspelt one would be lost in silence."""
    for name in sorted(os.environ):
        if name.startswith(PREFIX) and name not in origins.env_names:
            note(
                f"warning: environment variable {name} means nothing here.{nearest(name, origins.env_names)}"
            )


def env_name(flag: str) -> str:
    """The environment's name of a flag."""
    return PREFIX + flag.removeprefix("--").replace("-", "_").upper()


def nearest(name: str, known: Iterable[str]) -> str:
    """ " Did you mean ...?", or nothing when no name is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CycloptsError(msg=f"--config {path}: {error}") from error


def _names(arguments: ArgumentCollection) -> list[str]:
    return [argument.name for argument in arguments if argument.name.startswith("--")]
