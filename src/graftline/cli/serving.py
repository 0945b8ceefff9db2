"""`graftline serve`: from settings to a running server, and what it says at start."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from transformers import AutoConfig
from transformers.utils import logging as library_logging

from graftline.cli.options import ServeConfig, in_flags
from graftline.cli.output import human_bytes, note
from graftline.engine import load_engine
from graftline.engine.api import EngineInfo
from graftline.engine.layouts import ModelLayout, plan_layout
from graftline.errors import ConfigError, GraftlineError
from graftline.server.app import create_app
from graftline.server.config import ServerConfig
from graftline.server.logs import START, set_up
from graftline.server.serve import bind, serve, url_of
from graftline.server.state import Backend, State
from graftline.server.tokens import Tokenizer

start = logging.getLogger(START)
logger = logging.getLogger(__name__)


def run_server(path_or_name: str, options: ServeConfig) -> int:
    """Serves a model until a signal comes; returns the exit status.

    Raises:
        ConfigError: settings that cannot work, or an address that cannot be bound.
    """
    try:
        engine_config = options.engine_config()
    except ConfigError as error:
        raise ConfigError(in_flags(error.message), hint=in_flags(error.hint)) from None
    config = options.server_config(path_or_name)
    set_up(options.log.log_level, as_json=options.log.log_json)
    if not sys.stderr.isatty():
        library_logging.disable_progress_bar()
    listening = bind(config)
    url = url_of(listening)
    start.info("loading %s; %s answers 503 until it is there", path_or_name, url)
    state = State(config, options.cache.eviction_policy)

    def load() -> Backend:
        tokenizer = Tokenizer.load(path_or_name)
        return Backend(load_engine(path_or_name, engine_config), tokenizer)

    def on_settled(state: State) -> None:
        if state.failure is not None:
            _tell_failure(path_or_name, state.failure)
            app.state.stop()
            return
        for line in block(state.backend().engine.info, layout_of(path_or_name), config, options):
            start.info("%s", line)
        start.info("ready: %s", url)

    app = create_app(state, load, on_settled)
    return serve(app, state, listening)


def layout_of(path_or_name: str) -> ModelLayout:
    """Layers and components of a checkpoint."""
    return plan_layout(AutoConfig.from_pretrained(path_or_name))


def block(info: EngineInfo, layout: ModelLayout, config: ServerConfig, options: ServeConfig) -> Iterator[str]:
    """What is served and how, a line each."""
    kinds = Counter(layer.kind for layer in layout.layers)
    layers = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    yield f"model {config.model_names[0]}: {info.model_type}, {len(layout.layers)} layers ({layers})"
    yield f"composition {info.composition}"
    yield (
        f"page {info.page_tokens} tokens, longest sequence {info.max_model_tokens} tokens,"
        f" {info.dtype} on {info.device}"
    )
    states = {plan.name for plan in layout.components if plan.rule.holds_state}
    for pool in info.pools:
        per = "a state" if pool.component in states else "a token"
        unit_bytes = pool.slot_bytes if pool.component in states else pool.slot_bytes / info.page_tokens
        total = human_bytes(pool.capacity * pool.slot_bytes)
        yield f"pool {pool.component}: {pool.capacity} slots, {total}, {unit_bytes:,.0f} bytes {per}"
    yield from _tiers(info)
    reuse = "on" if options.cache.prefix_cache else "off"
    yield f"prefix cache {reuse}, eviction policy {options.cache.eviction_policy}, core {info.core}"
    yield _keys_line(config, options.network.api_key_file)


def _tiers(info: EngineInfo) -> Iterator[str]:
    """What is below the device; nothing without a host tier."""
    for pool in info.host_pools:
        total = human_bytes(pool.capacity * pool.slot_bytes)
        yield f"host {pool.component}: {pool.capacity} slots, {total}"
    if info.host_pools:
        stores = ", ".join(info.stores) or "none"
        yield f"write policy {info.write_policy}, stores: {stores}"
    if (speed := info.break_even) is not None:
        yield (
            f"measured: computing {speed.prefill_s_per_token * 1e6:,.0f} us a token,"
            f" host {_rate(speed.host_s_per_byte)}, store {_rate(speed.store_s_per_byte)}"
            f" and {speed.store_latency_s * 1e3:.1f} ms a fetch"
        )


def _rate(s_per_byte: float) -> str:
    return f"{human_bytes(int(1 / s_per_byte))}/s" if s_per_byte > 0 else "-"


def _keys_line(config: ServerConfig, key_file: Path | None) -> str:
    count = len(config.api_keys)
    keys = f"{count} API key{'s' if count > 1 else ''}" if count else "no API key: this machine only"
    source = f", key file {key_file}" if key_file else ", no key file"
    return f"{keys}{source}, {'an' if config.admin_api_key else 'no'} admin key"


def _tell_failure(path_or_name: str, error: BaseException) -> None:
    if isinstance(error, GraftlineError):
        note(f"error: {in_flags(error.message)}")
        if error.hint:
            note(f"hint: {in_flags(error.hint)}")
    elif isinstance(error, OSError):
        note(f"error: no model could be loaded from '{path_or_name}': {str(error).splitlines()[0]}")
        note("hint: name a local folder with config.json, weights and tokenizer, or a hub name")
    else:
        logger.error("loading %s failed", path_or_name, exc_info=error)
