"""The families of the zoo, found by name."""

from __future__ import annotations

import difflib

from graftline.errors import ConfigError
from graftline.zoo.families import compressed, mixed, plain, recurrent, window
from graftline.zoo.families.base import BOS_ID, EOS_ID, PAD_ID, FamilyInfo

ALL: tuple[FamilyInfo, ...] = (
    *window.FAMILIES,
    *recurrent.FAMILIES,
    *mixed.FAMILIES,
    *compressed.FAMILIES,
    *plain.FAMILIES,
)

_BY_NAME = {name: family for family in ALL for name in (family.name, *family.aliases)}


def find_family(name: str) -> FamilyInfo:
    """The family of a name or an alias; `-` and `_` are the same.

    Raises:
        ConfigError: no family has that name; the hint has the nearest one.
    """
    family = _BY_NAME.get(name.replace("-", "_"))
    if family is None:
        close = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
        hint = f"did you mean '{close[0]}'?" if close else "graftline.zoo.families() lists the names"
        raise ConfigError(f"no family of the zoo is named '{name}'", hint=hint)
    return family


__all__ = ["ALL", "BOS_ID", "EOS_ID", "PAD_ID", "FamilyInfo", "find_family"]
