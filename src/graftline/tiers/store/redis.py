"""Redis and Valkey: objects are plain strings of the server, one a key.

Large values travel as single SET and GET commands in a pipeline: one MSET would be copied as one huge frame.
The server bounds what is kept, by `maxmemory` and its policy: `allkeys-lru` suits a cache; with `noeviction`
a full server refuses writes: the reason `full` here. A lost connection is opened again by the next call.

    redis://[user:password@]host[:6379][/database]      valkey:// is the same
    rediss://...                                         valkeys://; TLS, `ca=FILE` for a CA of one's own
    redis+unix:///path/of/socket                         valkey+unix://
    arguments: prefix, ttl, timeout, connections, db, ca
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.urls import StoreUrl, parse_store_url

if TYPE_CHECKING:
    from redis import ConnectionPool, Redis
    from redis.client import Pipeline

logger = logging.getLogger(__name__)

SCHEMES = ("redis", "rediss", "valkey", "valkeys", "redis+unix", "valkey+unix")
_ARGUMENTS = ("prefix", "ttl", "timeout", "connections", "db", "ca")
_WAVE_BYTES, _WAVE_COMMANDS = 32 << 20, 512  # what is under way at once; replies are held in memory
_READ_BYTES = 256 << 10
_SENT_APART_BYTES = 6000  # shorter parts of a command are joined before they are sent
_KEY_LETTERS = 64
_CLEAR_SECONDS = 300.0
_YEAR_SECONDS = 365 * 86400


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """What the URL says besides the address."""

    shown: str
    prefix: str
    ttl_s: int
    """0 keeps objects until the server needs the room."""
    timeout_s: float
    connections: int


def open_redis(url: str) -> RedisStore:
    """A store in a Redis or Valkey server; connects at the first call.

    Args:
        url: see the head of this module. `prefix=graftline` begins each key; `ttl=SECONDS` lets objects
            expire; `timeout=2` seconds for connecting and for each read and write; `connections=4` at most.

    Raises:
        ConfigError: the URL makes no sense, or the package `redis` is missing.
    """
    parts = parse_store_url(url, SCHEMES)
    parts.arguments_only(_ARGUMENTS)
    options = RedisOptions(
        shown=parts.shown,
        prefix=parts.prefix(),
        ttl_s=parts.whole("ttl", 0, 1, _YEAR_SECONDS),
        timeout_s=parts.seconds("timeout", 2.0),
        connections=parts.whole("connections", 4, 1, 256),
    )
    return RedisStore(_pool(parts, options), options)


def _pool(parts: StoreUrl, options: RedisOptions) -> ConnectionPool:
    """Connections as the URL wants them; none is opened yet."""
    try:
        import redis as library  # noqa: PLC0415  an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.connection import PythonRespSerializer  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            f"'{parts.shown}' needs the package 'redis'", hint="pip install 'graftline[store-redis]'"
        ) from None
    unix = parts.scheme.endswith("+unix")
    settings: dict[str, Any] = {
        "username": parts.user or None,
        "password": parts.password or None,
        "db": _database(parts, unix),
        "socket_timeout": options.timeout_s,
        "socket_connect_timeout": options.timeout_s,
        "socket_read_size": _READ_BYTES,
        "protocol": 2,
        # One more try, so that a connection which the server has closed meanwhile is no fault.
        "retry": Retry(NoBackoff(), 1, supported_errors=(library.ConnectionError,)),
        "max_connections": options.connections,
        # hiredis would copy each value twice before it is sent; this one sends it from where it lies.
        "command_packer": PythonRespSerializer(_SENT_APART_BYTES, _encoded),
    }
    if unix:
        if not parts.path or parts.host:
            raise ConfigError(
                f"'{parts.shown}' names no socket", hint=f"write {parts.scheme}:///path/of/socket"
            )
        # A socket in the file system has neither keep-alive nor a timeout of its own for connecting.
        return library.ConnectionPool(
            connection_class=library.UnixDomainSocketConnection, path=parts.path, **settings
        )
    if not parts.host:
        raise ConfigError(f"'{parts.shown}' names no host", hint=f"write {parts.scheme}://127.0.0.1:6379")
    settings |= {"host": parts.host, "port": parts.port or 6379, "socket_keepalive": True}
    if parts.scheme in ("rediss", "valkeys"):
        authority = parts.text("ca") or None
        return library.ConnectionPool(
            connection_class=library.SSLConnection, ssl_ca_certs=authority, **settings
        )
    if parts.text("ca"):
        raise ConfigError(f"'{parts.shown}': 'ca' is for TLS only", hint="write rediss://")
    return library.ConnectionPool(connection_class=library.Connection, **settings)


def _encoded(value: Buffer | str | int) -> Buffer:
    """A part of a command as bytes."""
    return value if isinstance(value, bytes | bytearray | memoryview) else str(value).encode()


def _database(parts: StoreUrl, unix: bool) -> int:
    """The number of the database: the path of a TCP address, else `db=`."""
    path = "" if unix else parts.path.strip("/")
    if not path:
        return parts.whole("db", 0, 0, 2**31 - 1)
    if not path.isdecimal() or "db" in parts.arguments:
        raise ConfigError(
            f"'{parts.shown}': '/{path}' is not the number of a database",
            hint="write it once: redis://host/0 or ?db=0",
        )
    return int(path)


class RedisStore:
    """Objects in one Redis or Valkey server. `stat` speaks of the server's whole database."""

    def __init__(self, pool: ConnectionPool, options: RedisOptions) -> None:
        from redis import Redis  # noqa: PLC0415  an extra

        self.url = options.shown
        self._options = options
        self._pool = pool
        self._client: Redis = Redis(connection_pool=pool)
        self._free = threading.BoundedSemaphore(options.connections)
        self._closed = threading.Event()
        self._limits_told = False

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """One pipeline of EXISTS."""
        answers = self._pipelined(keys, [0] * len(keys), lambda pipe, i: pipe.exists(self._name(keys[i])))
        return [answer == 1 for answer in answers]

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """One GETRANGE an object, a byte longer than its buffer: no reply outgrows what was asked for."""
        sizes = [buffer.nbytes for buffer in buffers]
        got = [0] * len(keys)

        def ask(pipe: Pipeline, i: int) -> None:
            pipe.getrange(self._name(keys[i]), 0, sizes[i])

        def take(i: int, answer: object) -> None:
            if isinstance(answer, bytes) and 0 < len(answer) <= sizes[i]:
                buffers[i].cast("B")[: len(answer)] = answer
                got[i] = len(answer)

        self._pipelined(keys, sizes, ask, take)
        return got

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """One SET an object; it replaces what is there."""
        self._tell_limits()
        sizes = [memoryview(value).nbytes for value in values]
        expiry = self._options.ttl_s or None

        def write(pipe: Pipeline, i: int) -> None:
            pipe.set(self._name(keys[i]), memoryview(values[i]).cast("B"), ex=expiry)

        return [answer is True for answer in self._pipelined(keys, sizes, write)]

    def remove(self, keys: Sequence[Key]) -> None:
        """UNLINK: the server frees the memory in the background."""
        self._pipelined(keys, [0] * len(keys), lambda pipe, i: pipe.unlink(self._name(keys[i])))

    def clear(self) -> None:
        """One walk over the database, removing what has the prefix; other prefixes are left alone.

        Raises:
            StoreError: `timeout` when the walk takes too long; what was found until then is gone.
        """
        shape = f"{self._options.prefix}:" + "?" * _KEY_LETTERS
        until = time.monotonic() + _CLEAR_SECONDS
        cursor, first = 0, True
        while first or cursor:
            first = False
            with self._connected() as client:
                cursor, names = client.scan(cursor, match=shape, count=1000)
                if names:
                    client.unlink(*names)
            if cursor and time.monotonic() > until:
                raise StoreError(
                    "timeout", f"'{self.url}': too many keys to look through", hint="clear again"
                )

    def stat(self) -> StoreStat:
        """Keys of the database, memory of the server, and its `maxmemory`."""
        with self._connected() as client:
            memory = client.info("memory")
            return StoreStat(client.dbsize(), int(memory["used_memory"]), int(memory["maxmemory"]) or -1)

    def close(self) -> None:
        """Closes the connections; one that is in use closes when its call ends."""
        self._closed.set()
        self._pool.disconnect(inuse_connections=False)

    def _name(self, key: Key) -> str:
        return f"{self._options.prefix}:{key.hex()}"

    @contextmanager
    def _connected(self) -> Iterator[Redis]:
        """The client, while fewer than `connections` calls are under way; its errors become `StoreError`."""
        from redis import RedisError  # noqa: PLC0415  an extra

        if self._closed.is_set():
            raise StoreError("closed", f"'{self.url}' is closed")
        if not self._free.acquire(timeout=self._options.timeout_s):
            raise StoreError("timeout", f"'{self.url}': all {self._options.connections} connections are busy")
        try:
            yield self._client
        except (RedisError, OSError) as error:
            raise self._fault(error) from error
        finally:
            self._free.release()
            if self._closed.is_set():
                self._pool.disconnect(inuse_connections=False)

    def _pipelined(
        self,
        keys: Sequence[Key],
        sizes: Sequence[int],
        ask: Callable[[Pipeline, int], object],
        take: Callable[[int, object], object] | None = None,
    ) -> list[object]:
        """Sends one command a key, in waves of bounded size; `take` gets each answer and it is not kept then.

        Raises:
            StoreError: the server could not be asked, or refused everything that it was asked.
        """
        kept: list[object] = []
        faults: list[Exception] = []
        with self._connected() as client:
            for wave in _waves(sizes):
                pipe = client.pipeline(transaction=False)
                for i in wave:
                    ask(pipe, i)
                answers = pipe.execute(raise_on_error=False)
                faults += [answer for answer in answers if isinstance(answer, Exception)]
                for i, answer in zip(wave, answers, strict=True):
                    kept.append(take(i, answer) if take else answer)
        if faults and len(faults) == len(keys):
            raise self._fault(faults[0]) from faults[0]
        return kept

    def _fault(self, error: Exception) -> StoreError:
        """The reason in one word."""
        from redis import exceptions as known  # noqa: PLC0415  an extra

        what = f"'{self.url}': {error}"
        if isinstance(error, known.OutOfMemoryError):
            hint = "set the server's maxmemory-policy to allkeys-lru; it is noeviction, or nothing may leave"
            return StoreError("full", what, hint=hint)
        if isinstance(error, known.TimeoutError | TimeoutError):
            return StoreError("timeout", what)
        if isinstance(error, known.AuthenticationError | known.AuthorizationError | known.ResponseError):
            return StoreError("refused", what)
        return StoreError("down", what)

    def _tell_limits(self) -> None:
        """Says once when nothing bounds the server, or when it will not make room."""
        if self._limits_told:
            return
        from redis import ResponseError  # noqa: PLC0415  an extra

        with self._connected() as client:
            try:
                memory = client.info("memory")
            except ResponseError:  # not every user may ask
                memory = {}
        self._limits_told = True
        if memory.get("maxmemory") == 0 and not self._options.ttl_s:
            logger.warning("'%s' has no maxmemory: it grows until its machine is full", self.url)
        elif memory.get("maxmemory_policy") == "noeviction":
            logger.warning("'%s' has the policy noeviction: once full, it takes nothing more", self.url)


def _waves(sizes: Sequence[int]) -> Iterator[range]:
    """Consecutive positions, at most so many bytes and commands at once, at least one."""
    start, held = 0, 0
    for i, size in enumerate(sizes):
        if i > start and (held + size > _WAVE_BYTES or i - start >= _WAVE_COMMANDS):
            yield range(start, i)
            start, held = i, 0
        held += size
    if start < len(sizes):
        yield range(start, len(sizes))
