"""Orders of eviction. One policy a file."""

from graftline.policies.base import EvictionPolicy, Passage, Usage
from graftline.policies.cost import Cost
from graftline.policies.factory import POLICIES, as_policy, is_built_in, make_policy
from graftline.policies.gittins import Gittins
from graftline.policies.lfu import Lfu
from graftline.policies.lru import Lru
from graftline.policies.priority import Priority
from graftline.policies.session import Session
from graftline.policies.slru import Slru

__all__ = [
    "POLICIES",
    "Cost",
    "EvictionPolicy",
    "Gittins",
    "Lfu",
    "Lru",
    "Passage",
    "Priority",
    "Session",
    "Slru",
    "Usage",
    "as_policy",
    "is_built_in",
    "make_policy",
]
