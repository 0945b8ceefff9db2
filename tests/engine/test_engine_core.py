"""The core that the tests ask for is the one that keeps the books."""

from __future__ import annotations

from engine_support import serving


def test_the_engine_has_the_chosen_core(core: str) -> None:
    with serving("qwen3_5") as client:
        assert client.engine.info.core == core
        assert client.engine.cache.core.name == core
