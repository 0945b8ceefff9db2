"""Mooncake Store: memory of many machines as one store, over TCP or RDMA.

A master knows which process holds what; processes that lend memory (storage nodes, or graftline itself with
`segment=`) hold the objects; transfers go from process to process. docs/guide/mooncake.md: how to run it.

    mooncake://MASTER:PORT
    arguments: metadata, metrics, local, protocol, devices, segment, buffer, replicas, prefix, timeout

What the answers are worth: after a holder has died the master goes on to say that its objects exist, for
about 10 seconds; reading them yields nothing, which is a miss here. A batch with one hung holder waits for
the time limit; a read that was given up may still write into its lane, so whoever reads an object checks it.
Keys are removed with force: the lease that every look at an object takes would refuse it for seconds.
"""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.mooncake_client import Client, MooncakeOptions
from graftline.tiers.store.urls import StoreUrl, parse_store_url

SCHEMES = ("mooncake",)
_ARGUMENTS = (
    "metadata", "metrics", "local", "protocol", "devices",
    "segment", "buffer", "replicas", "prefix", "timeout",
)  # fmt: skip
_RDMA_DEVICES = Path("/sys/class/infiniband")
_BUFFER_BYTES_MIN = 4 << 20
_NOT_FOUND = -704
_FIGURES = ("master_key_count", "master_allocated_bytes", "master_total_capacity_bytes")


def open_mooncake(url: str) -> MooncakeStore:
    """A store in a Mooncake cluster; the client connects at the first call.

    Args:
        url: the master. Arguments: `metadata=http://host:8080/metadata` (on the master's host by default) or
            `P2PHANDSHAKE`; `segment=0` memory that this process lends; `buffer=256MB` memory that transfers
            go through, a quarter of it bounds one object; `protocol=tcp`, or `rdma` with `devices=mlx5_0,..`;
            `local=HOST` what others call this machine, by default its address towards the master;
            `replicas=1`; `prefix=graftline`; `timeout=5` seconds without progress;
            `metrics=http://host:9003` for `stat`.

    Raises:
        ConfigError: the URL makes no sense, or Mooncake cannot be loaded here.
    """
    parts = parse_store_url(url, SCHEMES)
    parts.arguments_only(_ARGUMENTS)
    if not parts.host or parts.port is None or parts.path.strip("/"):
        raise ConfigError(f"'{parts.shown}' does not name a master", hint="write mooncake://127.0.0.1:50051")
    host = f"[{parts.host}]" if ":" in parts.host else parts.host
    options = MooncakeOptions(
        shown=parts.shown,
        prefix=parts.prefix(),
        master=f"{host}:{parts.port}",
        metadata=_server(parts, "metadata", f"http://{host}:8080/metadata"),
        local=_local(parts),
        protocol=_protocol(parts),
        devices=parts.text("devices"),
        segment_bytes=parts.bytes_("segment", 0),
        buffer_bytes=parts.bytes_("buffer", 256 * 10**6, _BUFFER_BYTES_MIN),
        replicas=parts.whole("replicas", 1, 1, 16),
        timeout_s=parts.seconds("timeout", 5.0, 600.0),
    )
    return MooncakeStore(Client(options), options, _server(parts, "metrics", ""))


def _server(parts: StoreUrl, name: str, default: str) -> str:
    """An argument that names a server by URL."""
    text = parts.text(name, default)
    fine = (
        not text
        or text.startswith(("http://", "https://"))
        or (name == "metadata" and text == "P2PHANDSHAKE")
    )
    if not fine:
        raise ConfigError(f"'{parts.shown}': '{name}={text}' is not a URL", hint="write http://host:port/...")
    return text


def _local(parts: StoreUrl) -> str:
    """This machine's name, without a port: Mooncake adds one, for every process needs a name of its own.

    A second process under a name is refused, but the attempt strikes the first one off the metadata server.
    """
    text = parts.text("local")
    if text.count(":") == 1 or "]:" in text:
        raise ConfigError(f"'{parts.shown}': 'local={text}' has a port", hint="give the host alone")
    return text


def _protocol(parts: StoreUrl) -> str:
    """`tcp`, or `rdma` where there is a device for it; the native client would not say that there is none."""
    text = parts.text("protocol", "tcp")
    if text not in ("tcp", "rdma"):
        raise ConfigError(f"'{parts.shown}': 'protocol={text}' is neither tcp nor rdma")
    if text == "tcp" and parts.text("devices"):
        raise ConfigError(f"'{parts.shown}': 'devices' is for protocol=rdma only")
    if text == "rdma":
        there = sorted(p.name for p in _RDMA_DEVICES.iterdir()) if _RDMA_DEVICES.is_dir() else []
        missing = [name for name in parts.text("devices").split(",") if name and name not in there]
        if not there or missing:
            what = f"no RDMA device {', '.join(missing)}" if missing else "no RDMA device"
            raise ConfigError(
                f"'{parts.shown}': this machine has {what}",
                hint=f"there is {', '.join(there)}" if there else "use protocol=tcp",
            )
    return text


class MooncakeStore:
    """Objects in a Mooncake cluster. A call may block for seconds when a process of the cluster is gone."""

    def __init__(self, client: Client, options: MooncakeOptions, metrics: str) -> None:
        self.url = options.shown
        self._client = client
        self._options = options
        self._metrics = metrics
        self._writes = threading.Condition()
        self._under_way: set[Key] = set()

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """One question to the master. True may be wrong for 10 s after a holder died."""
        if not keys:
            return []
        with self._client.call() as native:
            codes = native.batch_is_exist([self._name(key) for key in keys])
        return [code == 1 for code in self._client.checked(codes)]

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """Batched reads into registered memory, copied from there; what cannot be read is missing."""
        staging = self._client.staging
        # A buffer larger than a lane may still hold an object that fits one.
        sizes = [min(buffer.nbytes, staging.object_bytes_max) for buffer in buffers]
        got = [0] * len(keys)
        with self._client.call() as native, staging.lane("read", self._options.timeout_s) as lane:
            start = lane.ctypes.data
            for wave in staging.waves(keys, sizes):
                codes = native.batch_get_into(
                    [self._name(keys[i]) for i, _ in wave],
                    [start + offset for _, offset in wave],
                    [sizes[i] for i, _ in wave],
                )
                for (i, offset), code in zip(wave, self._client.checked(codes), strict=True):
                    if 0 < code <= sizes[i]:
                        np.frombuffer(buffers[i], np.uint8)[:code] = lane[offset : offset + code]
                        got[i] = code
        return got

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """Batched writes from registered memory. An object that is there already is kept as it is.

        One that another process is just writing counts as there.
        """
        staging = self._client.staging
        flat = [_flat(value) for value in values]
        done = [False] * len(keys)
        limit_s = self._options.timeout_s
        with self._client.call() as native, self._alone(keys), staging.lane("write", limit_s) as lane:
            start = lane.ctypes.data
            for wave in staging.waves(keys, [data.nbytes for data in flat]):
                for i, offset in wave:
                    lane[offset : offset + flat[i].nbytes] = flat[i]
                codes = native.batch_put_from(
                    [self._name(keys[i]) for i, _ in wave],
                    [start + offset for _, offset in wave],
                    [flat[i].nbytes for i, _ in wave],
                    self._client.placing,
                )
                for (i, _), code in zip(wave, self._client.checked(codes), strict=True):
                    done[i] = code == 0
        return done

    def remove(self, keys: Sequence[Key]) -> None:
        """One request to the master."""
        if not keys:
            return
        with self._client.call() as native:
            self._client.checked(native.batch_remove([self._name(key) for key in keys], True))

    def clear(self) -> None:
        """One request to the master, by a pattern; other prefixes are left alone."""
        pattern = f"^{self._options.prefix.replace('.', '[.]')}/[0-9a-f]{{64}}$"
        with self._client.call() as native:
            count = native.remove_by_regex(pattern, True)
        if count < 0:
            self._client.checked([count])
            raise StoreError("refused", f"'{self.url}': could not be cleared (code {count})")

    def stat(self) -> StoreStat:
        """What the master counts for all its users, if `metrics=` was given."""
        if not self._metrics:
            return StoreStat(-1, -1, -1)
        try:
            with urllib.request.urlopen(
                f"{self._metrics}/metrics", timeout=self._options.timeout_s
            ) as answer:
                text = answer.read(1 << 20).decode()
        except (OSError, urllib.error.URLError) as error:
            raise StoreError("down", f"'{self.url}': {self._metrics}: {error}") from error
        found = dict(re.findall(rf"^({'|'.join(_FIGURES)}) (\d+)", text, re.MULTILINE))
        return StoreStat(*(int(found.get(name, -1)) for name in _FIGURES))

    def close(self) -> None:
        """Leaves the cluster; memory that was lent is taken back, with what lay in it."""
        self._client.close()

    @contextmanager
    def _alone(self, keys: Sequence[Key]) -> Iterator[None]:
        """Waits until no other thread writes one of these.

        The native client would call the second write of an object done while the first is still under way.
        """
        wanted = set(keys)
        with self._writes:
            free = self._writes.wait_for(
                lambda: self._under_way.isdisjoint(wanted), timeout=self._options.timeout_s
            )
            if not free:
                raise StoreError("timeout", f"'{self.url}': the same object is still being written")
            self._under_way |= wanted
        try:
            yield
        finally:
            with self._writes:
                self._under_way -= wanted
                self._writes.notify_all()

    def _name(self, key: Key) -> str:
        return f"{self._options.prefix}/{key.hex()}"


def _flat(value: Buffer) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes of a value where they lie; numpy does not take an empty buffer."""
    view = memoryview(value)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
