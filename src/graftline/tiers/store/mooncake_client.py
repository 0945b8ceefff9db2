"""What the Mooncake client of one process needs around it: connecting, a clean end, memory to move by.

The native client has traps that this file keeps away from callers:

- a call on a client that was closed, or whose setup failed, ends the process: `Client` lets none through, and
  does not close while one is under way;
- setup and close hold the interpreter's lock: setup is tried only after the master and the metadata server
  have answered, or it would freeze every thread for seconds;
- with a dead master each call takes 4.3 s: after one such call the master's port is tried first;
- its time limits are settings of the process (`MC_...`): they are set before it is loaded, where nobody did.
"""

from __future__ import annotations

import logging
import mmap
import os
import queue
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from graftline.errors import ConfigError
from graftline.tiers.store.base import Key, StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

RPC_FAIL, RPC_TIMEOUT, NO_ROOM = -900, -901, -200
_PROBE_SECONDS = 2.0
_ALIGN_BYTES = 4096
_LEFT_OPEN: list[object] = []
"""Clients that could not be closed, with the memory that they may still write to."""


@dataclass(frozen=True, slots=True)
class MooncakeOptions:
    """How one process takes part in a Mooncake store."""

    shown: str
    prefix: str
    master: str
    """host:port"""
    metadata: str
    """URL of the metadata server, or `P2PHANDSHAKE`."""
    local: str
    """This machine for the others; empty for its address towards the master."""
    protocol: str
    devices: str
    segment_bytes: int
    """Memory that this process lends to the store; 0 lends none."""
    buffer_bytes: int
    """Memory that transfers of this process go through."""
    replicas: int
    timeout_s: float


class Staging:
    """Registered memory in equal lanes; a lane serves one call at a time.

    Reads and writes have lanes of their own, so that a slow write keeps no read waiting.
    """

    LANES = 2

    def __init__(self, buffer_bytes: int) -> None:
        self._lane_bytes = buffer_bytes // (2 * self.LANES) // _ALIGN_BYTES * _ALIGN_BYTES
        self._memory = mmap.mmap(
            -1, self._lane_bytes * 2 * self.LANES
        )  # pages of it exist once they are used
        self.array: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)
        self._free: dict[str, queue.SimpleQueue[NDArray[np.uint8]]] = {}
        lanes = iter(self.array.reshape(2 * self.LANES, self._lane_bytes))
        for direction in ("read", "write"):
            self._free[direction] = queue.SimpleQueue()
            for _ in range(self.LANES):
                self._free[direction].put(next(lanes))

    @property
    def object_bytes_max(self) -> int:
        """The largest object that fits a lane."""
        return self._lane_bytes

    @contextmanager
    def lane(self, direction: str, timeout_s: float) -> Iterator[NDArray[np.uint8]]:
        """A lane of `direction` (`read` or `write`), uint8, as long as the block runs.

        Raises:
            StoreError: `timeout`: none came free in time.
        """
        try:
            lane = self._free[direction].get(timeout=timeout_s)
        except queue.Empty:
            raise StoreError("timeout", f"all {self.LANES} {direction} buffers are busy") from None
        try:
            yield lane
        finally:
            self._free[direction].put(lane)

    def waves(self, keys: Sequence[Key], sizes: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
        """(position, offset in the lane) of what goes by one call; sizes of 0 or beyond a lane stay out.

        No key comes twice in a call: of two equal ones the native client fills one buffer, and reports both.
        """
        wave: list[tuple[int, int]] = []
        offset, named = 0, set[Key]()
        for i, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            if not 0 < size <= self._lane_bytes:
                continue
            if offset + size > self._lane_bytes or key in named:
                yield wave
                wave, offset, named = [], 0, set()
            wave.append((i, offset))
            named.add(key)
            offset += ceil(size / _ALIGN_BYTES) * _ALIGN_BYTES
        if wave:
            yield wave


class Client:
    """The native client of one process, opened when it is first needed."""

    def __init__(self, options: MooncakeOptions) -> None:
        self._options = options
        self._library = _load(options)
        self.staging = Staging(options.buffer_bytes)
        self.placing = self._library.ReplicateConfig()
        self.placing.replica_num = options.replicas
        self._native: Any = None
        self._state = threading.Condition()
        self._opening = threading.Lock()
        self._closed = False
        self._calls = 0
        self._suspect = False

    @contextmanager
    def call(self) -> Iterator[Any]:
        """The native client, for one call.

        Raises:
            StoreError: `closed`, or the master cannot be reached.
        """
        with self._state:
            if self._closed:
                raise StoreError("closed", f"'{self._options.shown}' is closed")
            self._calls += 1
        try:
            yield self._opened()
        finally:
            with self._state:
                self._calls -= 1
                self._state.notify_all()

    def checked(self, codes: Sequence[int]) -> Sequence[int]:
        """The codes of a batch, if anything of it could be done.

        Raises:
            StoreError: nothing could: no answer from the master, or no room anywhere.
        """
        self._suspect = bool(codes) and all(code in (RPC_FAIL, RPC_TIMEOUT) for code in codes)
        if self._suspect:
            reason = "timeout" if codes[0] == RPC_TIMEOUT else "down"
            raise StoreError(reason, f"'{self._options.shown}': the master does not answer (code {codes[0]})")
        if codes and all(code == NO_ROOM for code in codes):
            raise StoreError(
                "full",
                f"'{self._options.shown}': no storage node has room",
                hint="start one that lends memory, or lend some with 'segment=4GB'",
            )
        return codes

    def close(self) -> None:
        """Closes the native client when no call is under way any more.

        It is left open if a call hangs for longer than its time limits, for closing would end the process
        then; or if the master is frozen, for closing would stop every thread until it goes on.
        """
        with self._state:
            if self._closed:
                return
            self._closed = True
            idle = self._state.wait_for(lambda: self._calls == 0, timeout=4 * self._options.timeout_s)
        if self._native is None:
            return
        if not idle or self._frozen():
            why = "the master is frozen" if idle else "a call of it does not end"
            logger.warning("'%s' is left open: %s", self._options.shown, why)
            _LEFT_OPEN.append((self._native, self.staging))
            return
        self._native.unregister_buffer(self.staging.array.ctypes.data)
        self._native.close()
        self._native = None

    def _frozen(self) -> bool:
        """Whether the master takes connections and does not answer."""
        try:
            if self._suspect and self._options.metadata.startswith("http"):
                _ask(f"{self._options.metadata}?key=graftline", self._options)
        except StoreError as error:
            return error.reason == "timeout"
        return False

    def _opened(self) -> Any:
        """The native client, set up if it is not yet."""
        if not self._opening.acquire(timeout=self._options.timeout_s):
            raise StoreError("timeout", f"'{self._options.shown}': another call is still connecting")
        try:
            if self._native is None or self._suspect:
                _probe(self._options.master, self._options)
            if self._native is None:
                self._native = self._set_up()
            return self._native
        finally:
            self._opening.release()

    def _set_up(self) -> Any:
        options = self._options
        if options.metadata.startswith("http"):
            _ask(f"{options.metadata}?key=graftline", options)
        native = self._library.MooncakeDistributedStore()
        code = native.setup(
            local_hostname=options.local or _address_towards(options.master),
            metadata_server=options.metadata,
            global_segment_size=options.segment_bytes,
            local_buffer_size=0,  # all transfers go through the staging memory
            protocol=options.protocol,
            rdma_devices=options.devices,
            master_server_addr=options.master,
        )
        if code == 0:
            code = native.register_buffer(self.staging.array.ctypes.data, self.staging.array.nbytes)
        if code != 0:
            raise StoreError(
                "refused",
                f"'{options.shown}': the client could not be set up (code {code})",
                hint="is 'local' this machine's name, 'metadata' right, and there memory for 'segment'?",
            )
        return native


def _probe(place: str, options: MooncakeOptions) -> None:
    """Whether somebody listens there; far cheaper than a call of the native client that fails."""
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return
    except OSError as error:
        reason = "timeout" if isinstance(error, TimeoutError) else "down"
        raise StoreError(reason, f"'{options.shown}': {place}: {error}") from error


def _ask(url: str, options: MooncakeOptions) -> None:
    """Whether a server answers, whatever it says: a frozen one still takes connections."""
    try:
        urllib.request.urlopen(url, timeout=_PROBE_SECONDS).close()
    except urllib.error.HTTPError as answer:
        answer.close()
    except OSError as error:
        reason = "timeout" if "timed out" in str(error) else "down"
        raise StoreError(reason, f"'{options.shown}': {url}: {error}") from error


def _address_towards(place: str) -> str:
    """The address of this machine on the way to `place`; nothing is sent."""
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((host.strip("[]"), int(port)))
        address = str(way.getsockname()[0])
    return f"[{address}]" if ":" in address else address


def _load(options: MooncakeOptions) -> Any:
    """The native library.

    Raises:
        ConfigError: the package is missing, or a library that it needs.
    """
    limit_s = str(max(1, ceil(options.timeout_s)))
    os.environ.setdefault("MC_TCP_PROGRESS_TIMEOUT_SEC", limit_s)
    os.environ.setdefault("MC_RPC_TIMEOUT_MS", str(int(1000 * options.timeout_s)))
    os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
    try:
        from mooncake import store  # type: ignore[import-untyped] # noqa: PLC0415  an extra
    except ImportError as error:
        if "libibverbs" in str(error):
            hint = "install the system library, for example: apt-get install libibverbs1"
        elif isinstance(error, ModuleNotFoundError):
            hint = "pip install 'graftline[store-mooncake]'"
        else:
            hint = (
                "the package mooncake-transfer-engine-non-cuda is there, but cannot be loaded on this machine"
            )
        raise ConfigError(f"'{options.shown}' needs Mooncake: {error}", hint=hint) from error
    return store
