"""When loading is cheaper than computing (rule H-6)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from graftline.errors import ConfigError
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.chain import ChainStore

RUNS = 3
SMALL_BYTES, LARGE_BYTES = 1024, 2**20


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Speeds of this machine, measured at start. The defaults load everything.

    Attributes:
        prefill_s_per_token: time to compute one prompt token.
        host_s_per_byte: time to bring one byte from the host to the device.
        host_latency_s: what every load from the host costs besides.
        store_s_per_byte, store_latency_s: the same from the store to the host.
        store_is_known: whether these two were given or measured; when not, they are measured as soon as the
            store answers.
    """

    prefill_s_per_token: float = 1.0
    host_s_per_byte: float = 0.0
    host_latency_s: float = 0.0
    store_s_per_byte: float = 0.0
    store_latency_s: float = 0.0
    store_is_known: bool = True

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must not be negative")

    def host_pays(self, gained_tokens: int, host_bytes: int) -> bool:
        """Whether loading from the host beats computing the tokens gained."""
        load_s = self.host_latency_s + host_bytes * self.host_s_per_byte
        return load_s < gained_tokens * self.prefill_s_per_token

    def store_pays(self, gained_tokens: int, store_bytes: int) -> bool:
        """Whether fetching from the store, then loading from the host, beats computing the tokens gained."""
        fetch_s = self.store_latency_s + store_bytes * self.store_s_per_byte
        load_s = self.host_latency_s + store_bytes * self.host_s_per_byte
        return fetch_s + load_s < gained_tokens * self.prefill_s_per_token

    def with_store(self, speed: StoreSpeed | None) -> BreakEven:
        """With what was measured of the store; None leaves its speed to be measured later."""
        if speed is None:
            return replace(self, store_is_known=False)
        return replace(
            self, store_s_per_byte=speed.s_per_byte, store_latency_s=speed.latency_s, store_is_known=True
        )


@dataclass(frozen=True, slots=True)
class StoreSpeed:
    """Seconds a byte, and seconds of a read of next to nothing."""

    s_per_byte: float
    latency_s: float


def time_store(chain: ChainStore) -> StoreSpeed | None:
    """Writes, reads and removes two objects; None when no store answers.

    Of a store that takes no writes only the time of a read that finds nothing is known.

    Cost: a megabyte to write, and to read four times; each call has its guard's deadline.
    """
    keys = [secrets.token_bytes(32), secrets.token_bytes(32)]
    values = [secrets.token_bytes(SMALL_BYTES), secrets.token_bytes(LARGE_BYTES)]

    def time_read(place: int) -> float:
        key, size = [keys[place]], [len(values[place])]
        return fastest(lambda: chain.get_checked(key, size, lambda *_: ""))

    try:
        taken = _takes(chain, keys, values)
        small_s = time_read(0)
        large_s = time_read(1) if taken else small_s
        if taken:
            chain.remove(keys)
    except StoreError:
        return None
    return StoreSpeed(max(0.0, large_s - small_s) / (LARGE_BYTES - SMALL_BYTES), small_s)


def _takes(chain: ChainStore, keys: list[bytes], values: list[bytes]) -> bool:
    """Whether objects were written."""
    try:
        return all(chain.put(keys, values))
    except StoreError as error:
        if error.reason in ("full", "refused"):
            return False
        raise


def fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs, after one that warms up."""
    run()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)
