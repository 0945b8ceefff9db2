"""Small paths, layouts and values for the tests of the stores."""

from __future__ import annotations

import numpy as np

from graftline.key import Namespace, page_keys
from graftline.tiers.store.objects import ObjectLayout, Path, layout_digest

PAGE_TOKENS = 4
LAYOUT = ObjectLayout("full", layout_digest("k f16 2x8, v f16 2x8", PAGE_TOKENS, 2), PAGE_TOKENS, 24)


def path(pages: int = 6, salt: str = "", first_token: int = 100, page_tokens: int = PAGE_TOKENS) -> Path:
    tokens = np.arange(first_token, first_token + pages * page_tokens, dtype=np.uint32)
    seed = Namespace(salt=salt).seed()
    return Path(tokens, seed, list(page_keys(seed, tokens, page_tokens)), page_tokens)


def values(pages: int, layout: ObjectLayout = LAYOUT, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (pages, layout.slot_bytes), dtype=np.uint8)
