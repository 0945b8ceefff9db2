"""The process: binds, serves, drains on a signal, and says how it ended."""

from __future__ import annotations

import logging
import signal
import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from graftline.errors import ConfigError
from graftline.server.config import ServerConfig
from graftline.server.state import Phase, State

logger = logging.getLogger(__name__)

CONNECTION_CLOSE_S = 5
"""Time for answers to reach slow clients, after the last request is done."""


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket; done before the model is loaded, so that a taken port is known at once.

    Raises:
        ConfigError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {error}",
            hint="try another --port; 0 takes a free one",
        ) from error


def url_of(listening: socket.socket) -> str:
    """The address under which clients on this machine reach a socket."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class DrainingServer(uvicorn.Server):
    """Stops in two steps: the first signal lets running requests finish and what was kept reach the stores,
    the second one ends both.

    Args:
        app: the application.
        state: its state.
    """

    def __init__(self, app: FastAPI, state: State) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=CONNECTION_CLOSE_S,
            )
        )
        self._state = state
        self._signals: list[int] = []
        self._drain_until_s = 0.0
        self.cut_requests = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remembers a signal; `on_tick` acts on it."""
        del frame
        self._signals.append(sig)
        self._state.stop()

    def stop(self) -> None:
        """As a signal would; from any thread."""
        self.handle_exit(signal.SIGTERM, None)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if self._signals:
            self._drain()
        return await super().on_tick(counter)

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped from the keyboard."""
        return signal.SIGINT in self._signals

    def _drain(self) -> None:
        state = self._state
        if not self._drain_until_s:
            self._drain_until_s = time.monotonic() + state.config.drain_s
            state.drain()
            logger.info("stopping: %d requests may finish within %g s", len(state.runs), state.config.drain_s)
        late = time.monotonic() >= self._drain_until_s
        if state.runs and (late or len(self._signals) > 1):
            self.cut_requests += state.stop_runs()
            logger.warning("ended %d running requests", self.cut_requests)
        if not state.runs:
            self.should_exit = True


def serve(app: FastAPI, state: State, listening: socket.socket) -> int:
    """Serves until a signal comes or the model can't be loaded.

    Returns:
        Exit status: 0 after a drain, 1 when requests were cut off, or what was to be written to stores, or
        there is no model, 130 when stopped from the keyboard.
    """
    server = DrainingServer(app, state)
    app.state.stop = server.stop
    server.run(sockets=[listening])
    if server.interrupted:
        return 130
    cut = server.cut_requests or (state.stops > 1 and state.unwritten)
    return 1 if cut or state.phase is Phase.FAILED else 0
