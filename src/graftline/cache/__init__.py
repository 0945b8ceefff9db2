"""The facade that engines embed: it owns the slots and executes what the tree decides."""

from graftline.cache.prefix_cache import PoolUse, PrefixCache
from graftline.cache.request import CachedRequest

__all__ = ["CachedRequest", "PoolUse", "PrefixCache"]
