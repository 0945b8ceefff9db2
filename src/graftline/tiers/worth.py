"""When loading is cheaper than computing (rule H-6)."""

from __future__ import annotations

from dataclasses import dataclass

from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Speeds of this machine, measured at start. The defaults load everything.

    Attributes:
        prefill_s_per_token: time to compute one prompt token.
        host_s_per_byte: time to bring one byte from the host to the device.
        host_latency_s: what every load from the host costs besides.
        store_s_per_byte, store_latency_s: the same from the store to the host.
    """

    prefill_s_per_token: float = 1.0
    host_s_per_byte: float = 0.0
    host_latency_s: float = 0.0
    store_s_per_byte: float = 0.0
    store_latency_s: float = 0.0

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
