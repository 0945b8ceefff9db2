"""Stores from URLs. What needs a client library imports it only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module

from graftline.errors import ConfigError
from graftline.tiers.store.base import Store
from graftline.tiers.store.chain import ChainStore
from graftline.tiers.store.guard import GuardedStore, GuardLimits

# Scheme to module of this folder, and function in it that takes the URL.
_OPENERS = {
    "file": ("file", "open_file"),
    "memory": ("memory", "open_memory"),
    **dict.fromkeys(
        ("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix"), ("redis", "open_redis")
    ),
    **dict.fromkeys(("s3", "gs", "az"), ("object", "open_object_store")),
    "mooncake": ("mooncake", "open_mooncake"),
}
_EXTRAS = {"redis": "store-redis", "object": "store-object", "mooncake": "store-mooncake"}
"""Module to the extra of the package that brings its library."""


def open_store(url: str) -> Store:
    """Opens a store; one that is down opens too, and fails at each call until it is back.

    Args:
        url: for example `file:/var/cache/graftline?size=10GB`, `memory:?size=1GB`, `redis://host:6379/0`,
            `s3://bucket/prefix`, `mooncake://master:50051`.
    Raises:
        ConfigError: an unknown scheme, a URL that makes no sense, or a missing library.
    """
    scheme = url.partition(":")[0].lower() if ":" in url else ""
    if scheme not in _OPENERS:
        near = get_close_matches(scheme, _OPENERS, 1)
        hint = f"did you mean '{near[0]}:'?" if near else f"known are {', '.join(f'{s}:' for s in _OPENERS)}"
        raise ConfigError(f"store '{_start(url)}' has no scheme that is known", hint=hint)
    module, function = _OPENERS[scheme]
    try:
        opener: Callable[[str], Store] = getattr(import_module(f"graftline.tiers.store.{module}"), function)
        return opener(url)
    except ImportError as error:
        extra = _EXTRAS.get(module, "store")
        raise ConfigError(
            f"a '{scheme}:' store needs a package that is not installed: {error.name or error}",
            hint=f"pip install 'graftline[{extra}]'",
        ) from error


def open_stores(urls: Sequence[str], limits: GuardLimits | None = None) -> ChainStore:
    """Stores in a row, the near one first, each guarded.

    Raises:
        ConfigError: see `open_store`; or one URL comes twice.
    """
    opened: list[GuardedStore] = []
    try:
        opened.extend(GuardedStore(open_store(url), limits) for url in urls)
        return ChainStore(opened)
    except ConfigError:
        for store in opened:
            store.close()
        raise


def _start(url: str) -> str:
    """As much of a URL as holds no password."""
    return url.partition("//")[0]
