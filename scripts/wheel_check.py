"""Run beside an installed wheel: the package imports, the Rust core is in it, and it needs numpy alone."""

from __future__ import annotations

import sys
from importlib.metadata import distributions

from graftline.cache import PrefixCache
from graftline.components import ComponentSpec, Full, Window

cache = PrefixCache([ComponentSpec("full", Full(), 64), ComponentSpec("swa", Window(31), 32)], page_tokens=16)
assert cache.core.name == "rust", cache.core.name
for _ in range(2):
    with cache.begin(list(range(100))) as request:
        while request.computed_tokens < 100:
            request.grow(request.next_stop())
            request.advance(request.next_stop())
        request.finish()
assert request.reused_tokens == 96, request.reused_tokens
cache.check()
installed = {d.name for d in distributions()} - {"pip", "setuptools"}
assert installed == {"graftline", "numpy"}, installed
print("the wheel works; installed:", ", ".join(sorted(installed)), "on Python", sys.version.split()[0])
