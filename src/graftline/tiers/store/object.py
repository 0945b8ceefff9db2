"""Object stores: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage, through obstore.

One object a key, at `PREFIX/ab/abcdef...`: the first two of the 64 hex digits spread the keys. A batch is
many requests, as many at once as `concurrency` says. Nothing here bounds what is kept: give the bucket a
lifecycle rule that removes objects after some days.

    s3://[key:secret@]bucket[/prefix]       arguments: endpoint, region, ca, concurrency, timeout
    gs://bucket[/prefix]                    arguments: endpoint, ca, concurrency, timeout
    az://container[/prefix]                 arguments: account, endpoint, ca, concurrency, timeout

Credentials that the URL does not give come from the environment or the machine, as each provider's own tools
take them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graftline.errors import ConfigError
from graftline.tiers.store.base import Buffer, Key, StoreError, StoreStat
from graftline.tiers.store.urls import StoreUrl, parse_store_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Answer = TypeVar("Answer")

SCHEMES = ("s3", "gs", "az")
_ARGUMENTS = {
    "s3": ("endpoint", "region", "ca", "concurrency", "timeout"),
    "gs": ("endpoint", "ca", "concurrency", "timeout"),
    "az": ("account", "endpoint", "ca", "concurrency", "timeout"),
}
_SHAPE = re.compile(r"(?:.+/)?([0-9a-f]{2})/(\1[0-9a-f]{62})")
_LISTED_AT_ONCE = 1000
_CLEAR_SECONDS = 300.0
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ObjectOptions:
    """What the URL says besides the address."""

    shown: str
    prefix: str
    concurrency: int
    bulk_delete: bool
    """Whether many objects go by one request, and a missing one is no error there."""


def open_object_store(url: str) -> ObjectStoreStore:
    """A store in a bucket; nothing is sent before the first call.

    Args:
        url: see the head of this module. The prefix is `graftline` when none is given; `concurrency=16`
            requests at once; `timeout=10` seconds for one request; `endpoint=http://127.0.0.1:8333` for a
            server of one's own; `ca=FILE` for its CA.

    Raises:
        ConfigError: the URL makes no sense, or the package `obstore` is missing.
    """
    parts = parse_store_url(url, SCHEMES)
    parts.arguments_only(_ARGUMENTS[parts.scheme])
    if not parts.host or parts.port is not None:
        raise ConfigError(f"'{parts.shown}' names no bucket", hint=f"write {parts.scheme}://bucket/prefix")
    options = ObjectOptions(
        shown=parts.shown,
        prefix=parts.prefix(parts.path.strip("/") or "graftline"),
        concurrency=parts.whole("concurrency", 16, 1, 256),
        bulk_delete=parts.scheme == "s3",
    )
    return ObjectStoreStore(_client(parts), options)


def _client(parts: StoreUrl) -> ObjectStore:
    """The provider's client."""
    try:
        from obstore.store import AzureStore, GCSStore, S3Store  # noqa: PLC0415  an extra
    except ImportError:
        raise ConfigError(
            f"'{parts.shown}' needs the package 'obstore'", hint="pip install 'graftline[store-object]'"
        ) from None
    settings = _settings(parts)
    endpoint = parts.text("endpoint")
    try:
        if parts.scheme == "s3":
            if endpoint:
                settings |= {"endpoint": endpoint, "region": parts.text("region", "us-east-1")}
            elif parts.text("region"):
                settings["region"] = parts.text("region")
            if parts.user:
                settings |= {"access_key_id": parts.user, "secret_access_key": parts.password}
            return S3Store(parts.host, **settings)
        if parts.scheme == "gs":
            settings |= {"base_url": endpoint} if endpoint else {}
            return GCSStore(parts.host, **settings)
        settings |= {"account_name": parts.text("account")} if parts.text("account") else {}
        settings |= {"endpoint": endpoint} if endpoint else {}
        return AzureStore(parts.host, **settings)
    except Exception as error:  # obstore has no common base for bad settings
        raise ConfigError(f"'{parts.shown}': {_first_line(error)}") from error


def _settings(parts: StoreUrl) -> dict[str, Any]:
    """Time limits and trust, as all providers take them."""
    timeout_s = parts.seconds("timeout", 10.0)
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=min(timeout_s, _CONNECT_SECONDS)),
        "allow_http": parts.text("endpoint").startswith("http://"),
    }
    if parts.text("ca"):
        try:
            client["root_certificate"] = Path(parts.text("ca")).read_bytes()
        except OSError as error:
            raise ConfigError(f"'{parts.shown}': cannot read 'ca={parts.text('ca')}': {error}") from None
    retry = {
        "max_retries": 1,
        "retry_timeout": timedelta(seconds=timeout_s),
        "backoff": {
            "init_backoff": timedelta(milliseconds=50),
            "max_backoff": timedelta(seconds=1),
            "base": 2,
        },
    }
    return {"client_options": client, "retry_config": retry}


class ObjectStoreStore:
    """Objects in a bucket. `stat` cannot tell sizes: counting would list the bucket."""

    def __init__(self, client: ObjectStore, options: ObjectOptions) -> None:
        self.url = options.shown
        self._client = client
        self._options = options
        self._workers = ThreadPoolExecutor(options.concurrency, thread_name_prefix="graftline-objects")

    def exists(self, keys: Sequence[Key]) -> list[bool]:
        """One HEAD an object."""
        import obstore  # noqa: PLC0415  an extra

        def look(i: int) -> bool:
            try:
                obstore.head(self._client, self._path(keys[i]))
            except FileNotFoundError:
                return False
            return True

        return self._each(len(keys), look, False)

    def get_into(self, keys: Sequence[Key], buffers: Sequence[memoryview]) -> list[int]:
        """One GET an object; one that is larger than its buffer is not downloaded."""
        import obstore  # noqa: PLC0415  an extra

        def read(i: int) -> int:
            try:
                found = obstore.get(self._client, self._path(keys[i]))
            except FileNotFoundError:
                return 0
            if found.meta["size"] > buffers[i].nbytes:
                return 0
            data = memoryview(found.bytes())
            buffers[i].cast("B")[: data.nbytes] = data
            return data.nbytes

        return self._each(len(keys), read, 0)

    def put(self, keys: Sequence[Key], values: Sequence[Buffer]) -> list[bool]:
        """One PUT an object; it replaces what is there, as a whole."""
        import obstore  # noqa: PLC0415  an extra

        def write(i: int) -> bool:
            obstore.put(
                self._client, self._path(keys[i]), memoryview(values[i]).cast("B"), use_multipart=False
            )
            return True

        return self._each(len(keys), write, False)

    def remove(self, keys: Sequence[Key]) -> None:
        """A thousand objects a request on S3; one elsewhere."""
        self._remove_paths([self._path(key) for key in keys])

    def clear(self) -> None:
        """One walk over the prefix; nothing that this store would not have written is removed.

        Raises:
            StoreError: `timeout` when the walk takes too long; what was found until then is gone.
        """
        import obstore  # noqa: PLC0415  an extra
        from obstore.exceptions import BaseError  # noqa: PLC0415

        until = time.monotonic() + _CLEAR_SECONDS
        depth = self._options.prefix.count("/") + 2
        try:
            for found in obstore.list(self._client, f"{self._options.prefix}/", chunk_size=_LISTED_AT_ONCE):
                paths = [entry["path"] for entry in found]
                ours = [p for p in paths if p.count("/") == depth and _SHAPE.fullmatch(p)]
                self._remove_paths(ours)
                if time.monotonic() > until:
                    raise StoreError(
                        "timeout", f"'{self.url}': too many objects to clear", hint="clear again"
                    )
        except (BaseError, OSError) as error:
            raise self._fault(error) from error

    def stat(self) -> StoreStat:
        """Nothing is known."""
        return StoreStat(-1, -1, -1)

    def close(self) -> None:
        """Takes no more calls; requests that are under way end by their own time limit."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _path(self, key: Key) -> str:
        name = key.hex()
        return f"{self._options.prefix}/{name[:2]}/{name}"

    def _remove_paths(self, paths: list[str]) -> None:
        import obstore  # noqa: PLC0415  an extra

        step = _LISTED_AT_ONCE if self._options.bulk_delete else 1
        groups = [paths[start : start + step] for start in range(0, len(paths), step)]

        def drop(i: int) -> bool:
            try:
                obstore.delete(self._client, groups[i])
            except FileNotFoundError:
                return False
            return True

        self._each(len(groups), drop, False)

    def _each(self, count: int, work: Callable[[int], Answer], failed: Answer) -> list[Answer]:
        """Does `work` for each position; `failed` stands where it raised.

        After `concurrency` faults the rest is not tried.

        Raises:
            StoreError: none of it could be done, or the store is closed.
        """
        from obstore.exceptions import BaseError  # noqa: PLC0415  an extra

        try:
            tasks = [self._workers.submit(work, i) for i in range(count)]
        except RuntimeError:
            raise StoreError("closed", f"'{self.url}' is closed") from None
        answers, done = [failed] * count, 0
        faults: list[Exception] = []
        for i, task in enumerate(tasks):
            try:
                answers[i] = task.result()
                done += 1
            except CancelledError:
                if len(faults) < self._options.concurrency:
                    raise StoreError("closed", f"'{self.url}' was closed meanwhile") from None
            except (BaseError, OSError) as error:
                faults.append(error)
                if len(faults) == self._options.concurrency:
                    for rest in reversed(tasks):
                        rest.cancel()
        if faults and not done:
            raise self._fault(faults[0]) from faults[0]
        return answers

    def _fault(self, error: Exception) -> StoreError:
        """The reason in one word; obstore tells apart only some of them by class."""
        from obstore import exceptions as known  # noqa: PLC0415  an extra

        what = f"'{self.url}': {_first_line(error)}"
        if isinstance(error, FileNotFoundError):
            return StoreError("refused", what, hint="is the bucket there?")
        if isinstance(error, known.PermissionDeniedError | known.UnauthenticatedError):
            return StoreError("refused", what)
        text = str(error)
        if "kind: Timeout" in text:
            return StoreError("timeout", what)
        if "status: 507" in text:
            return StoreError("full", what)
        return StoreError("down", what)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
