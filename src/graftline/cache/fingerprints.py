"""Short names of paths, for tables that must not keep the tokens themselves."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from graftline.key import Namespace, Tokens

Prints = npt.NDArray[np.uint64]


class Fingerprints:
    """Numbers that tell paths apart: a sum of the tokens, each times a random factor of its place, mod 2^64.

    Two paths have the same one by chance alone, and nobody can look for such paths, as the factors are
    drawn anew for each cache. They are for guesses; what is reused never rests on them.

    Args:
        page_tokens: tokens a page; paths are told apart at the ends of whole pages.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page = page_tokens
        self._factors: Prints = np.empty(0, np.uint64)

    def of(self, namespace: Namespace, tokens: Tokens) -> Prints:
        """One number for each whole page: that of the path up to its end; shape (pages,).

        Cost: O(tokens), less than half a millisecond for 100,000.
        """
        pages = len(tokens) // self._page
        whole = tokens[: pages * self._page].astype(np.uint64)
        terms = (whole + np.uint64(1)) * self._factors_of(len(whole))
        seed = np.uint64(int.from_bytes(namespace.seed()[:8], "little"))
        sums: Prints = np.cumsum(
            terms.reshape(pages, self._page).sum(axis=1, dtype=np.uint64), dtype=np.uint64
        )
        return sums + seed

    def _factors_of(self, count: int) -> Prints:
        """Odd ones: two paths that differ in one token never meet."""
        if count > len(self._factors):
            more = np.frombuffer(secrets.token_bytes(8 * max(count, 4096)), np.uint64)
            self._factors = np.concatenate([self._factors, more | np.uint64(1)])
        return self._factors[:count]
