"""The facade that engines embed: it owns the slots and executes what the tree decides."""

from graftline.cache.level import PoolUse
from graftline.cache.load import Load
from graftline.cache.lower import HostConfig, host_slots
from graftline.cache.prefetch import Prefetch
from graftline.cache.prefix_cache import PrefixCache
from graftline.cache.request import CachedRequest
from graftline.cache.sessions import OpenSession, Session, SessionLimits
from graftline.cache.shelf import StoreConfig
from graftline.cache.shortfall import Reach, Shortfall

__all__ = [
    "CachedRequest",
    "HostConfig",
    "Load",
    "OpenSession",
    "PoolUse",
    "Prefetch",
    "PrefixCache",
    "Reach",
    "Session",
    "SessionLimits",
    "Shortfall",
    "StoreConfig",
    "host_slots",
]
