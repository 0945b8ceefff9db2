"""Settings of `graftline serve`: each docstring below is the help of its flag, in every listing.

The one place that knows flags, environment names, keys of the file and defaults; `engine_config` and
`server_config` turn them into what the layers below take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter, Token

from graftline.errors import ConfigError
from graftline.server.config import ServerConfig

if TYPE_CHECKING:
    from graftline.engine.config import EngineConfig

UNITS = {"": 1, "B": 1, **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)}} | {
    f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)
}
DEFAULT_CHUNK_TOKENS = 512


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `4GiB`, `512MB` or `1000`.

    Raises:
        ValueError: it is none.
    """
    units = {name.lower(): size for name, size in UNITS.items()}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(f"'{text}' is no size; write 4GiB, 512MB or a number of bytes")
    return int(float(match[1]) * units[match[2]])


def parse_slots(text: str) -> dict[str, int]:
    """Slots per component from `full=1024,state=64`.

    Raises:
        ValueError: it reads otherwise.
    """
    slots = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, count = item.partition("=")
        if not equals or not name.strip() or not count.strip().isdecimal():
            raise ValueError(f"'{item}' is not COMPONENT=SLOTS, for example full=1024")
        slots[name.strip()] = int(count)
    return slots


FLAG_OF = {
    "page_tokens": "--page-size",
    "chunk_tokens": "--chunk-tokens",
    "max_batched_tokens": "--max-num-batched-tokens",
    "max_running": "--max-num-seqs",
    "max_waiting": "--max-waiting",
    "max_model_tokens": "--max-model-len",
    "device_bytes": "--device-memory",
    "namespace_share": "--tenant-share",
    "session_ttl_s": "--session-ttl",
    "max_sessions": "--max-sessions",
    "explain_pages": "--explain-pages",
    "host_bytes": "--host-memory",
    "host_ratio": "--host-ratio",
    "write_uses": "--write-uses",
    "prefetch_timeout_s": "--prefetch-timeout",
    "drain_s": "--store-drain-timeout",
}
"""The engine's settings, as its errors name them, to the flags that set them."""


def in_flags(text: str) -> str:
    """A text of the engine with the names that whoever types the command knows."""
    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda found: FLAG_OF.get(found[0], found[0]), text)


def _bytes(_: type, tokens: Sequence[Token]) -> int:
    return parse_bytes(tokens[0].value)


def _slots(_: type, tokens: Sequence[Token]) -> dict[str, int]:
    return {name: count for token in tokens for name, count in parse_slots(token.value).items()}


NETWORK = Group.create_ordered("Network and access")
MODEL = Group.create_ordered("Model")
BATCH = Group.create_ordered("Batching")
CACHE = Group.create_ordered("Cache and memory")
TIERS = Group.create_ordered("Host memory and stores")
LOG = Group.create_ordered("Log")

Size = Annotated[int, Parameter(converter=_bytes, n_tokens=1)]
Slots = Annotated[
    Mapping[str, int], Parameter(converter=_slots, n_tokens=1, accepts_keys=False, allow_repeating=False)
]
Names = Annotated[tuple[str, ...], Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What is served."""

    served_model_name: Names = ()
    """Name that requests give; may be repeated. The last part of MODEL's path if left out."""
    max_model_len: int = 0
    """Longest sequence in tokens, prompt and answer together; 0 takes the model's own limit."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; auto takes the checkpoint's own."""
    device: str = "auto"
    """cpu, cuda, cuda:1 and so on; auto takes CUDA where there is one."""
    threads: int = 0
    """CPU threads of torch; 0 takes torch's choice, but 1 on one or two cores."""


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """Where the server listens, and who may call it."""

    host: str = "127.0.0.1"
    """Address to bind. Others than this machine's own need an API key."""
    port: int = 8000
    """Port; 0 takes a free one and prints it."""
    api_key: Names = ()
    """Key that clients send as 'Authorization: Bearer KEY'; may be repeated."""
    api_key_file: Path | None = None
    """File with one key a line; empty lines and lines that begin with # are left out."""
    admin_api_key: str = ""
    """Key that is needed to reset the cache."""
    max_body: Size = 32 * 2**20
    """Largest request body, for example 32MiB."""
    drain_timeout: float = 30.0
    """Seconds that running requests may take after the signal to stop; a second signal ends them."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How much runs at once."""

    max_num_seqs: int = 16
    """Most sequences computed at once."""
    max_num_batched_tokens: int = 2048
    """Most tokens computed in one step."""
    chunk_tokens: int = 0
    """Prompts are cut at multiples of this many tokens; 0 takes 512, or a whole step if that is less."""
    max_waiting: int = 1024
    """Most sequences that wait; more are refused with status 429."""


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """What is kept."""

    page_size: int = 16
    """Tokens a page; rounded up to what the model needs."""
    device_memory: Size = 0
    """Memory for all pools, for example 4GiB; 0 takes a share of what is free."""
    slots: Slots = field(default_factory=dict)
    """Slots of single components in place of their share of the memory: full=1024,state=64."""
    prefix_cache: bool = True
    """Whether prompts reuse anything."""
    eviction_policy: str = "lru"
    """Which values leave first: lru, lfu, slru, priority, session, session(lfu), cost, gittins."""
    checkpoints: str = "replay,end,answer,branch,marks"
    """Boundaries with windows and states: replay, end, answer, branch, marks, grid:TOKENS; newest:COUNT."""
    tenant_share: float = 1.0
    """Most of each pool that the prompts of one cache_salt may keep."""
    session_ttl: float = 3600.0
    """Seconds after which an idle session is closed."""
    max_sessions: int = 100_000
    """Most sessions that are open; the one idle longest is closed first."""
    infer_sessions: bool = True
    """Whether requests without a session are taken for turns of the conversations that they go on with."""
    explain_pages: int = 50_000
    """Pages of each component whose fate is remembered after they left, for explanations; 0 for none."""
    core: Literal["auto", "python", "rust"] = "auto"
    """Which tree core keeps the books; auto takes the Rust core where it is installed."""


@dataclass(frozen=True, slots=True)
class TierOptions:
    """What is below the device."""

    host_memory: Size = 0
    """Host memory for what the device has no room for, for example 8GB; 0 for none."""
    host_ratio: float = 0.0
    """The same as a multiple of the device's pools, in place of --host-memory."""
    overlap_loads: bool = True
    """Whether a request that runs alone begins while its values come up from the host, layer by layer."""
    write_policy: Literal["write_through", "write_back", "none"] = "write_through"
    """When values go down to the host: as they are kept, when the device runs short, or never."""
    write_uses: int = 1
    """write_through takes a boundary down after this many uses; keeping it is the first."""
    store: Names = ()
    """URL of a store below the host (file:, redis:, s3:, mooncake:); may be repeated, near ones first."""
    prefetch_policy: Literal["best_effort", "wait", "timeout"] = "timeout"
    """What a request does while a store brings up a part of its prompt."""
    prefetch_timeout: float = 2.0
    """Seconds that it waits under timeout."""
    store_drain_timeout: float = 10.0
    """Seconds that closing may wait for what is on its way to a store; a second signal ends the wait."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is written to stderr."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is written."""
    log_json: bool = False
    """One JSON object a line."""
    log_prompts: bool = False
    """Write prompts to the log, at level debug."""
    log_interval: float = 10.0
    """Seconds between two lines of figures; 0 for none."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """All settings of a server; each one has a flag, an environment name and a key in the file."""

    model: Annotated[ModelOptions, Parameter(name="*", group=MODEL)] = ModelOptions()
    network: Annotated[NetworkOptions, Parameter(name="*", group=NETWORK)] = NetworkOptions()
    batch: Annotated[BatchOptions, Parameter(name="*", group=BATCH)] = BatchOptions()
    cache: Annotated[CacheOptions, Parameter(name="*", group=CACHE)] = CacheOptions()
    tiers: Annotated[TierOptions, Parameter(name="*", group=TIERS)] = TierOptions()
    log: Annotated[LogOptions, Parameter(name="*", group=LOG)] = LogOptions()

    def engine_config(self) -> EngineConfig:
        """What the engine takes.

        Raises:
            ConfigError: values that cannot work.
        """
        from graftline.engine.config import EngineConfig  # noqa: PLC0415  loads torch

        batch, cache, model, tiers = self.batch, self.cache, self.model, self.tiers
        chunk = batch.chunk_tokens or min(DEFAULT_CHUNK_TOKENS, batch.max_num_batched_tokens)
        if chunk > batch.max_num_batched_tokens:
            raise ConfigError(
                f"--chunk-tokens is {chunk}, more than"
                f" --max-num-batched-tokens {batch.max_num_batched_tokens}",
                hint="a whole chunk must fit into a step",
            )
        return EngineConfig(
            page_tokens=cache.page_size,
            chunk_tokens=chunk,
            max_batched_tokens=batch.max_num_batched_tokens,
            max_running=batch.max_num_seqs,
            max_waiting=batch.max_waiting,
            max_model_tokens=model.max_model_len,
            device_bytes=cache.device_memory,
            slots=cache.slots,
            prefix_cache=cache.prefix_cache,
            core=cache.core,
            policy=cache.eviction_policy,
            checkpoints=cache.checkpoints,
            namespace_share=cache.tenant_share,
            session_ttl_s=cache.session_ttl,
            max_sessions=cache.max_sessions,
            infer_sessions=cache.infer_sessions,
            explain_pages=cache.explain_pages,
            host_bytes=tiers.host_memory,
            host_ratio=tiers.host_ratio,
            overlap_loads=tiers.overlap_loads,
            write_policy=tiers.write_policy,
            write_uses=tiers.write_uses,
            stores=tiers.store,
            prefetch_policy=tiers.prefetch_policy,
            prefetch_timeout_s=tiers.prefetch_timeout,
            drain_s=tiers.store_drain_timeout,
            dtype=model.dtype,
            device=model.device,
            threads=model.threads,
        )

    def server_config(self, path_or_name: str) -> ServerConfig:
        """What the server takes.

        Args:
            path_or_name: the model, for its name.

        Raises:
            ConfigError: values that cannot work, or a key file that cannot be read.
        """
        network, log = self.network, self.log
        return ServerConfig(
            host=network.host,
            port=network.port,
            api_keys=(*network.api_key, *_keys_of(network.api_key_file)),
            admin_api_key=network.admin_api_key,
            model_names=self.model.served_model_name or (default_name(path_or_name),),
            max_body_bytes=network.max_body,
            drain_s=network.drain_timeout,
            log_interval_s=log.log_interval,
            log_prompts=log.log_prompts,
        )


DEFAULTS = ServeConfig()

ConfigFile = Annotated[Path | None, Parameter(help="TOML file; its keys are the names of the flags.")]
Options = Annotated[ServeConfig, Parameter(name="*")]
Json = Annotated[bool, Parameter(help="Print JSON.", negative=())]


def default_name(path_or_name: str) -> str:
    """A served name: of a local model the folder's own name, so that clients see no paths."""
    path = Path(path_or_name).expanduser()
    return path.resolve().name if path.is_dir() else path_or_name


def _keys_of(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = [line.strip() for line in path.expanduser().read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file '{path}' cannot be read: {error}") from error
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"--api-key-file '{path}' has no key", hint="write one key a line")
    return keys


def shown(name: str, value: Any) -> Any:
    """A value as listings show it: keys are counted, never shown."""
    if name in ("--api-key", "--admin-api-key"):
        count = len(value) if isinstance(value, tuple) else int(bool(value))
        return f"({count} set)" if count else "(none)"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
