"""Settings of the HTTP server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from graftline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the server listens, who may call it, and what it bounds.

    Attributes:
        host: address to bind.
        port: TCP port; 0 takes a free one.
        api_keys: any one of them opens `/v1/*` and what is not public; none leaves them open.
        admin_api_key: opens everything and is needed to reset the cache; empty for none.
        model_names: names that requests may give; the first one is reported.
        max_body_bytes: largest request body.
        max_sequences: most sequences of one request: prompts times `n`.
        drain_s: how long running requests may take after the signal to stop.
        ping_s: silence in a stream after which a comment is sent.
        log_interval_s: seconds between two lines of figures in the log; 0 for none.
        log_prompts: whether prompts are written to the log, at debug level.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    admin_api_key: str = ""
    model_names: tuple[str, ...] = ("model",)
    max_body_bytes: int = 32 * 2**20
    max_sequences: int = 256
    drain_s: float = 30.0
    ping_s: float = 15.0
    log_interval_s: float = 10.0
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}, it must be from 0 to 65535")
        if not self.model_names or not all(self.model_names):
            raise ConfigError(
                f"model_names is {self.model_names!r}", hint="give at least one name, none empty"
            )
        if not all(self.api_keys):
            raise ConfigError("an API key is empty")
        for name in ("max_body_bytes", "max_sequences", "ping_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must be above 0")
        for name in ("drain_s", "log_interval_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}, it must not be negative")
        if not self.api_keys and not is_loopback(self.host):
            raise ConfigError(
                f"without an API key the server listens on this machine only, not on '{self.host}'",
                hint="give --api-key or --api-key-file, or bind 127.0.0.1",
            )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only; of names that is `localhost` alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
