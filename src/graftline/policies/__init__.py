"""Orders of eviction. One policy a file."""

from graftline.policies.base import EvictionPolicy, Usage
from graftline.policies.lru import Lru

__all__ = ["EvictionPolicy", "Lru", "Usage"]
