"""`graftline make-model`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from graftline.cli.output import data, human_bytes, json_data, table
from graftline.errors import ConfigError
from graftline.zoo import describe, families
from graftline.zoo.make import make_model


@dataclass(frozen=True, slots=True)
class Order:
    """What to make; as in `graftline.zoo.make.make_model`, sizes as `NAME=NUMBER`."""

    family: str
    directory: Path | None
    preset: str
    seed: int
    dtype: str
    sizes: tuple[str, ...]
    overwrite: bool


def list_families(*, as_json: bool) -> int:
    """Prints the families of the zoo."""
    infos = [describe(name) for name in families()]
    if as_json:
        json_data(
            [
                {
                    "family": info.name,
                    "model_type": info.model_type,
                    "composition": info.composition,
                    "aliases": list(info.aliases),
                    "notes": info.notes,
                }
                for info in infos
            ]
        )
    else:
        table(
            [(info.name, info.composition, info.notes) for info in infos], ("family", "composition", "notes")
        )
    return 0


def make(order: Order, *, as_json: bool) -> int:
    """Writes a model and prints where it is.

    Raises:
        ConfigError: something is missing or cannot work.
    """
    if not order.family or order.directory is None:
        raise ConfigError(
            "a family and a directory are needed", hint="graftline make-model --list shows the families"
        )
    made = make_model(
        order.family,
        order.directory,
        preset=order.preset,
        seed=order.seed,
        dtype=order.dtype,
        overrides=dict(_size(text) for text in order.sizes),
        overwrite=order.overwrite,
    )
    if as_json:
        json_data({**asdict(made), "path": str(made.path)})
    else:
        data(f"{made.path}  {made.parameters:,} parameters, {human_bytes(made.bytes)}")
    return 0


def _size(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or not number.strip().isdecimal():
        raise ConfigError(f"--set '{text}' is not NAME=NUMBER", hint="for example --set layers=12")
    return name.strip().replace("-", "_"), int(number)
