"""URLs of stores on this machine: `memory:` and `file:`, which need no `//`."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from graftline.errors import ConfigError
from graftline.tiers.store.urls import StoreUrl


def parse_local_url(url: str, scheme: str) -> StoreUrl:
    """Takes `scheme:PATH?name=value` apart; `scheme:///PATH` names the same place.

    Raises:
        ConfigError: another scheme or host, or an argument that is given twice or has no value.
    """
    parts = urlsplit(url)
    if parts.scheme.lower() != scheme:
        raise ConfigError(f"store '{url}' does not begin with '{scheme}:'")
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"store '{url}' names the host '{parts.netloc}'", hint=f"write {scheme}:PATH or {scheme}:///PATH"
        )
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"store '{url}': arguments must be name=value") from error
    arguments = dict(pairs)
    if len(arguments) != len(pairs):
        raise ConfigError(f"store '{url}' gives an argument twice")
    return StoreUrl(
        scheme=scheme,
        user="",
        password="",
        host="",
        port=None,
        path=unquote(parts.path),
        shown=url,
        arguments=arguments,
    )
