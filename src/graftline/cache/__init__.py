"""The facade that engines embed: it owns the slots and executes what the tree decides."""

from graftline.cache.level import PoolUse
from graftline.cache.load import Load
from graftline.cache.lower import HostConfig, host_slots
from graftline.cache.prefetch import Prefetch
from graftline.cache.prefix_cache import PrefixCache
from graftline.cache.request import CachedRequest
from graftline.cache.sessions import Session, SessionLimits
from graftline.cache.shelf import StoreConfig

__all__ = [
    "CachedRequest",
    "HostConfig",
    "Load",
    "PoolUse",
    "Prefetch",
    "PrefixCache",
    "Session",
    "SessionLimits",
    "StoreConfig",
    "host_slots",
]
