"""A model without a model: its values are digests of the tokens so far, so that a wrong one is seen at once.

Every token's place in a paged pool holds the digest of the tokens up to it, and a state the digest of all
tokens that went into it. To compute a token, everything that a real layer would read is looked up and
compared: the pages that the token can see, and the live state.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from graftline.cache import CachedRequest, HostConfig, PrefixCache
from graftline.cache.cores import has_rust
from graftline.components import Checkpoint, Chunk, ComponentSpec, Full, ReuseRule, Window
from graftline.key import Namespace
from graftline.tiers import NumpyPool

INSTALLED = ["python", "rust"] if has_rust() else ["python"]
COMPOSITIONS: dict[str, dict[str, ReuseRule]] = {
    "full": {"full": Full()},
    "window": {"swa": Window(7)},
    "full_window": {"full": Full(), "swa": Window(7)},
    "full_chunk": {"full": Full(), "chunk": Chunk(8)},
    "full_state": {"full": Full(), "state": Checkpoint()},
    "state": {"state": Checkpoint()},
    "all": {
        "full": Full(),
        "swa": Window(5),
        "chunk": Chunk(12),
        "state": Checkpoint(),
        "conv": Checkpoint(),
    },
}


def digests(namespace: Namespace, tokens: Iterable[int]) -> list[int]:
    """Digest of the first token, of the first two, and so on."""
    value, found = zlib.crc32(namespace.seed()), []
    for token in tokens:
        value = zlib.crc32(int(token).to_bytes(4, "little"), value)
        found.append(value)
    return found


def first_visible(rule: ReuseRule, position: int) -> int:
    """First token that the token at `position` sees."""
    if isinstance(rule, Window):
        return max(0, position - rule.lookback_tokens)
    if isinstance(rule, Chunk):
        return position // rule.chunk_tokens * rule.chunk_tokens
    return 0


class Model:
    """A cache over numpy pools, and what computes into them.

    Args:
        composition: name of one of `COMPOSITIONS`.
        page_tokens: tokens a page.
        slots: places in each pool.
        core: which tree core keeps the books; `usual_core` by default.
        host: the host tier, if there is to be one.
        more: passed on to the cache.
    """

    usual_core = "python"

    def __init__(
        self,
        composition: str,
        page_tokens: int = 4,
        slots: int | dict[str, int] = 200,
        core: str | None = None,
        host: HostConfig | None = None,
        **more: object,
    ) -> None:
        rules = COMPOSITIONS[composition]
        counts = slots if isinstance(slots, dict) else dict.fromkeys(rules, slots)
        self.rules = rules
        self.page_tokens = page_tokens
        shapes = {name: () if rule.holds_state else (page_tokens,) for name, rule in rules.items()}
        self.pools = {name: NumpyPool.zeros(counts[name], {"v": shapes[name]}, np.int64) for name in rules}
        self.cache = PrefixCache(
            [ComponentSpec(name, rule, counts[name]) for name, rule in rules.items()],
            page_tokens=page_tokens,
            pools=self.pools,
            core=core or self.usual_core,
            host=host,
            **more,
        )
        self.namespaces: dict[int, Namespace] = {}

    def begin(self, tokens: Sequence[int], salt: str = "", **more: object) -> CachedRequest:
        """A request whose restored states are right."""
        namespace = Namespace(salt=salt)
        request = self.cache.begin(tokens, namespace=namespace, **more)
        self.namespaces[id(request)] = namespace
        self.verify(request)
        return request

    def values(self, name: str) -> np.ndarray:
        """The values of one pool."""
        return self.pools[name].arrays["v"]

    def expected(self, request: CachedRequest) -> list[int]:
        return digests(self.namespaces[id(request)], request.tokens)

    def verify(self, request: CachedRequest, position: int | None = None) -> None:
        """Everything that the token at `position`, the next one by default, would read is right."""
        position = request.computed_tokens if position is None else position
        digest = self.expected(request)
        for name, rule in self.rules.items():
            if rule.holds_state:
                if request.computed_tokens:
                    held = self.values(name)[request.live_slot(name)]
                    assert held == digest[request.computed_tokens - 1], f"state of '{name}'"
                continue
            table = request.table(name)
            for place in range(first_visible(rule, position), position):
                slot = table[place // self.page_tokens]
                assert slot >= 0, f"'{name}' lacks token {place}"
                assert self.values(name)[slot][place % self.page_tokens] == digest[place], (
                    f"'{name}', {place}"
                )

    def compute(self, request: CachedRequest, to_tokens: int) -> None:
        """Computes tokens up to `to_tokens`, which is no further than the next stop."""
        request.grow(to_tokens)
        digest, start = self.expected(request), request.computed_tokens
        for position in range(start, to_tokens):
            self.verify_reads(request, digest, position)
            for name, rule in self.rules.items():
                if not rule.holds_state:
                    slot = request.table(name)[position // self.page_tokens]
                    self.values(name)[slot][position % self.page_tokens] = digest[position]
        for name, rule in self.rules.items():
            if rule.holds_state:
                self.values(name)[request.live_slot(name)] = digest[to_tokens - 1]
        request.advance(to_tokens)

    def verify_reads(self, request: CachedRequest, digest: list[int], position: int) -> None:
        """The oldest and the newest token that `position` sees are right."""
        for name, rule in self.rules.items():
            first = first_visible(rule, position)
            if not rule.holds_state and first < position:
                table = request.table(name)
                for place in (first, position - 1):
                    value = self.values(name)[table[place // self.page_tokens]][place % self.page_tokens]
                    assert value == digest[place], f"'{name}', token {place} for {position}"

    def prefill(self, request: CachedRequest, most: int = 10**6) -> list[int]:
        """Computes the prompt; returns where it paused."""
        stops = []
        while request.computed_tokens < len(request.tokens):
            to_tokens = min(request.next_stop(), request.computed_tokens + most)
            self.compute(request, to_tokens)
            stops.append(to_tokens)
        return stops

    def generate(self, request: CachedRequest, tokens: Sequence[int]) -> None:
        """Adds tokens one by one, each computed before the next; the last one is not computed."""
        for number, token in enumerate(tokens):
            request.append([token])
            if number < len(tokens) - 1:
                self.compute(request, len(request.tokens))

    def run(self, prompt: Sequence[int], generated: Sequence[int] = (), **more: object) -> CachedRequest:
        """A whole request, finished."""
        with self.begin(prompt, **more) as request:
            self.prefill(request)
            self.generate(request, generated)
            request.finish()
        return request

    def begin_and_abort(self, prompt: Sequence[int], salt: str = "") -> int:
        """How much of a prompt would be reused."""
        with self.begin(prompt, salt) as request:
            return request.reused_tokens

    def assert_idle_and_whole(self) -> None:
        """Nothing is lost, and nobody holds anything but the trees."""
        if self.cache.lower is not None:
            self.cache.lower.flush()
        self.cache.check()
        for use in self.cache.uses():
            assert (use.private, use.leased) == (0, 0)
            assert use.free + use.held == use.capacity


class Fault:
    """While entered, the n-th call (from 0) of one method, over all its owners, raises an error.

    Attributes:
        happened: whether there was an n-th call.
    """

    def __init__(self, owners: Iterable[object], method: str, n: int, error: BaseException) -> None:
        self.happened = False
        self._owners = list(owners)
        self._method = method
        self._calls_left = n
        self._error = error

    def __enter__(self) -> Fault:
        for owner in self._owners:
            setattr(owner, self._method, self._counting(getattr(owner, self._method)))
        return self

    def __exit__(self, *_: object) -> None:
        for owner in self._owners:
            delattr(owner, self._method)

    def _counting(self, call: Callable[..., object]) -> Callable[..., object]:
        def counting(*args: object, **kwargs: object) -> object:
            self._calls_left -= 1
            if self._calls_left == -1:
                self.happened = True
                raise self._error
            return call(*args, **kwargs)

        return counting
