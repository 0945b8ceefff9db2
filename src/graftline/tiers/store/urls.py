"""URLs of stores: their parts, and query arguments that are typed, bounded and named when they are wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote, urlsplit

from graftline.errors import ConfigError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_PREFIX = re.compile(
    r"[A-Za-z0-9_.:-]+(?:/[A-Za-z0-9_.:-]+)*"
)  # no sign with a meaning in a pattern but the dot
_PREFIX_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store's URL in parts."""

    scheme: str
    user: str
    password: str = field(repr=False)
    host: str
    port: int | None
    path: str
    """With its leading slash, percent signs resolved; empty when there is none."""
    shown: str
    """The whole URL without the password."""
    arguments: dict[str, str]

    def arguments_only(self, names: Iterable[str]) -> None:
        """Refuses arguments that the store does not know.

        Raises:
            ConfigError: one is not in `names`.
        """
        known = sorted(names)
        for name in self.arguments:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
                raise ConfigError(f"'{self.shown}': unknown argument '{name}'", hint=hint)

    def text(self, name: str, default: str = "") -> str:
        """An argument as it stands."""
        return self.arguments.get(name, default)

    def whole(self, name: str, default: int, lowest: int, highest: int) -> int:
        """A whole number between two bounds, both allowed.

        Raises:
            ConfigError: it is none, or out of bounds.
        """
        text = self.arguments.get(name)
        if text is None:
            return default
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            raise ConfigError(
                f"'{self.shown}': '{name}={text}' is not a whole number from {lowest} to {highest}"
            )
        return int(text)

    def seconds(self, name: str, default_s: float, highest_s: float = 3600.0) -> float:
        """A time in seconds, above zero.

        Raises:
            ConfigError: it is none, or out of bounds.
        """
        text = self.arguments.get(name)
        if text is None:
            return default_s
        try:
            value_s = float(text)
        except ValueError:
            value_s = -1.0
        if not 0.0 < value_s <= highest_s:
            raise ConfigError(
                f"'{self.shown}': '{name}={text}' is not a time in seconds, above 0 and at most {highest_s:g}"
            )
        return value_s

    def bytes_(self, name: str, default_bytes: int, lowest_bytes: int = 0) -> int:
        """A size such as `512MB` or `2GiB`, in bytes.

        Raises:
            ConfigError: it is none, or too small.
        """
        text = self.arguments.get(name)
        if text is None:
            return default_bytes
        found = _AMOUNT.fullmatch(text.strip())
        unit = _UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None:
            raise ConfigError(f"'{self.shown}': '{name}={text}' is not a size", hint="write 512MB or 2GiB")
        amount = int(float(found[1]) * unit)
        if amount < lowest_bytes:
            raise ConfigError(f"'{self.shown}': '{name}={text}' is less than {lowest_bytes} bytes")
        return amount

    def prefix(self, default: str = "graftline") -> str:
        """What the keys of this store begin with: letters, digits and `_ . : - /`.

        Raises:
            ConfigError: another sign is in it, or it is empty or too long.
        """
        text = self.arguments.get("prefix", default)
        if not _PREFIX.fullmatch(text) or len(text) > _PREFIX_LENGTH_MAX:
            raise ConfigError(
                f"'{self.shown}': 'prefix={text}' cannot be a prefix",
                hint=f"1 to {_PREFIX_LENGTH_MAX} letters, digits and any of _ . : - with / between",
            )
        return text


def parse_store_url(url: str, schemes: Iterable[str]) -> StoreUrl:
    """Takes a URL apart.

    Raises:
        ConfigError: another scheme, no `//`, an impossible port, or an argument that is given twice.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"'{_without_password(url)}' is not a URL: {error}") from None
    wanted = sorted(schemes)
    shown = _without_password(url)
    if parts.scheme not in wanted:
        raise ConfigError(f"'{shown}' does not begin with one of {', '.join(f'{s}://' for s in wanted)}")
    if not url[len(parts.scheme) :].startswith("://"):
        raise ConfigError(f"'{shown}' has no '//' after '{parts.scheme}:'")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    arguments = dict(pairs)
    if len(arguments) != len(pairs):
        raise ConfigError(f"'{shown}' gives an argument twice")
    return StoreUrl(
        scheme=parts.scheme,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        host=parts.hostname or "",
        port=port,
        path=unquote(parts.path),
        shown=shown,
        arguments=arguments,
    )


def _without_password(url: str) -> str:
    """The URL without the password; cut more widely where the URL makes no sense."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        return re.sub(r"//.*@", "//", url)
    return re.sub(r"//([^/?#:@]*):[^/?#]*@", r"//\1@", url, count=1)
