"""`graftline make-model`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from graftline.cli.options import Json
from graftline.cli.output import data, human_bytes, json_data, table
from graftline.errors import ConfigError

EXAMPLES = """Examples:

  graftline make-model --list
  graftline make-model inkling ./tiny-inkling
  graftline make-model qwen3-next ./demo --preset demo --set layers=12 --set window_tokens=256"""

Switch = Annotated[bool, Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model is made."""

    preset: Literal["tiny", "demo", "bench"] = "tiny"
    """How large."""
    seed: int = 0
    """Chooses the weights."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of the weights."""
    set: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """A size that differs from the preset, as NAME=NUMBER; may be repeated."""
    overwrite: Switch = False
    """Replace a model that is there."""


PLAIN = Recipe()


def make_model(
    family: str = "",
    directory: Path | None = None,
    *,
    recipe: Annotated[Recipe, Parameter(name="*")] = PLAIN,
    list: Switch = False,
    json: Json = False,
) -> int:
    """Writes a small model with random weights, for tests and demonstrations.

    Args:
        family: Name of the family; --list shows them.
        directory: Where to.
        list: Show the families and make nothing.
    """
    if list:
        _list_families(as_json=json)
        return 0
    if not family or directory is None:
        raise ConfigError(
            "a family and a directory are needed", hint="'graftline make-model --list' shows the families"
        )
    _make(family, directory, recipe, as_json=json)
    return 0


def _list_families(*, as_json: bool) -> None:
    from graftline.zoo import describe, families  # noqa: PLC0415  loads torch; --help need not wait for it

    infos = [describe(name) for name in families()]
    if not as_json:
        table([(i.name, i.composition, i.notes) for i in infos], ("family", "composition", "notes"))
        return
    json_data(
        [
            {
                "family": info.name,
                "model_type": info.model_type,
                "composition": info.composition,
                "aliases": [*info.aliases],
                "notes": info.notes,
            }
            for info in infos
        ]
    )


def _make(family: str, directory: Path, recipe: Recipe, *, as_json: bool) -> None:
    from graftline.zoo import make  # noqa: PLC0415  as above

    made = make.make_model(
        family,
        directory,
        preset=recipe.preset,
        seed=recipe.seed,
        dtype=recipe.dtype,
        overrides=dict(_size(text) for text in recipe.set),
        overwrite=recipe.overwrite,
    )
    if as_json:
        json_data({**asdict(made), "path": str(made.path)})
    else:
        data(f"{made.path}  {made.parameters:,} parameters, {human_bytes(made.bytes)}")


def _size(text: str) -> tuple[str, int]:
    name, equals, number = text.partition("=")
    if not equals or not number.strip().isdecimal():
        raise ConfigError(f"--set '{text}' is not NAME=NUMBER", hint="for example --set layers=12")
    return name.strip().replace("-", "_"), int(number)
