"""The application: routes, middleware, and the loading of the engine."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer

from graftline import __version__
from graftline.server import admin, cache_routes, errors, generate
from graftline.server.auth import AuthMiddleware, Keys
from graftline.server.figures_line import log_figures
from graftline.server.middleware import BodyLimitMiddleware, RequestIdMiddleware
from graftline.server.state import Backend, State, nothing

logger = logging.getLogger(__name__)

Load = Callable[[], Backend]
Settled = Callable[[State], None]


def create_app(state: State, load: Load, on_settled: Settled = lambda _: None) -> FastAPI:
    """An application that answers `/health` with 503 until its engine is loaded.

    Args:
        state: settings; what it holds from now on is the application's.
        load: makes the engine and its tokenizer; called on a thread when the application starts. What it
            makes is closed when the application ends.
        on_settled: called on the event loop once, when the engine is loaded or could not be.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(_life(state, load, on_settled))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            if state.loaded:
                await _close(state)

    app = FastAPI(title="graftline", version=__version__, lifespan=lifespan)
    app.state.server = state
    errors.install(app)
    keyed = [Depends(HTTPBearer(auto_error=False))] if state.config.api_keys else []
    app.include_router(admin.public)
    app.include_router(admin.router, dependencies=keyed)
    app.include_router(cache_routes.router, dependencies=keyed)
    app.include_router(generate.router, dependencies=keyed)
    app.add_middleware(BodyLimitMiddleware, max_bytes=state.config.max_body_bytes)
    admin_keys = [state.config.admin_api_key] if state.config.admin_api_key else []
    app.add_middleware(AuthMiddleware, api_keys=Keys(state.config.api_keys), admin_keys=Keys(admin_keys))
    app.add_middleware(RequestIdMiddleware)
    _without_422(app)
    return app


async def _life(state: State, load: Load, on_settled: Settled) -> None:
    """Loads the engine, tells, and then writes figures to the log until cancelled."""
    try:
        state.ready(await _on_daemon_thread(load))
    except Exception as error:  # noqa: BLE001  whatever it is, the server has no engine; `on_settled` tells it
        state.fail(error)
    on_settled(state)
    if state.loaded:
        await log_figures(state)


async def _close(state: State) -> None:
    """Closes the engine, which waits for its stores a while, unless it is told to stop once more."""
    backend, loop = state.backend(), asyncio.get_running_loop()
    state.stop_runs()
    state.on_hurry(partial(loop.call_soon_threadsafe, backend.engine.hurry))
    state.unwritten = await asyncio.to_thread(backend.engine.close)
    state.on_hurry(nothing)
    backend.tokenizer.close()


async def _on_daemon_thread(load: Load) -> Backend:
    """Runs `load` on a thread that doesn't keep the process alive: a signal may come while it loads."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Backend] = loop.create_future()

    def tell(backend: Backend | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if backend is not None:
            done.set_result(backend)
        elif error is not None:
            done.set_exception(error)

    def work() -> None:
        try:
            backend = load()
        except Exception as error:  # noqa: BLE001  carried over to the waiting task
            loop.call_soon_threadsafe(tell, None, error)
        else:
            loop.call_soon_threadsafe(tell, backend, None)

    threading.Thread(target=work, name="graftline-load", daemon=True).start()
    return await done


def _without_422(app: FastAPI) -> None:
    """Takes out of the OpenAPI document what FastAPI says of validation: here it is a 400."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()
            for path in schema["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(name, None)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
