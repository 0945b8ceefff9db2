"""Routes that tell how the server is, and what it serves."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from graftline import __version__
from graftline.server.cache_routes import break_even_body, pool_bodies
from graftline.server.errors import ApiError, unavailable
from graftline.server.metrics import CONTENT_TYPE
from graftline.server.responses import (
    ModelCard,
    ModelList,
    ServerInfo,
    Status,
    Version,
)
from graftline.server.routing import AppState, failures
from graftline.server.state import Phase, State

public = APIRouter(tags=["public"])
router = APIRouter(tags=["server"])


@public.get("/health", responses=failures(503))
async def health(state: AppState) -> Status:
    """200 when requests can be answered; no token is generated for it."""
    if state.backend().engine.failed:
        raise unavailable("the engine stopped after a fault; restart the server", "engine_failed")
    return Status(status="ok")


@public.get("/ping", responses=failures(503))
async def ping(state: AppState) -> Status:
    """As `/health`."""
    return await health(state)


@public.get("/ready", responses=failures(503))
async def ready(state: AppState) -> Status:
    """200 when new requests are taken; 503 while loading and while draining."""
    if state.phase is not Phase.READY:
        raise unavailable(f"the server is {state.phase.value}", state.phase.value)
    return await health(state)


@public.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(state: AppState) -> Response:
    """Figures for Prometheus."""
    return Response(await asyncio.to_thread(state.metrics.text), media_type=CONTENT_TYPE)


@public.get("/version")
async def version() -> Version:
    """Which graftline it is."""
    return Version(version=__version__)


@router.get("/v1/models", responses=failures(401, 403, 503))
async def models(state: AppState) -> ModelList:
    """All served names; they mean one model."""
    return ModelList(data=[_card(state, name) for name in state.config.model_names])


@router.get("/v1/models/{name:path}", responses=failures(401, 403, 404, 503))
async def model(name: str, state: AppState) -> ModelCard:
    """One served model."""
    if name not in state.config.model_names:
        raise ApiError(404, f"the model '{name[:200]}' is not served here", "model", "model_not_found")
    return _card(state, name)


@router.get("/server_info", responses=failures(401, 403, 503))
async def server_info(state: AppState) -> ServerInfo:
    """What is served, and how."""
    engine = state.backend().engine
    info, stats = engine.info, await asyncio.to_thread(engine.stats)
    return ServerInfo(
        version=__version__,
        models=list(state.config.model_names),
        model_type=info.model_type,
        composition=info.composition,
        page_size=info.page_tokens,
        max_model_len=info.max_model_tokens,
        vocab_size=info.vocab_size,
        dtype=info.dtype,
        device=info.device,
        core=info.core,
        pools=pool_bodies(info.pools),
        host_pools=pool_bodies(info.host_pools),
        write_policy=info.write_policy,
        stores=list(info.stores),
        break_even=break_even_body(stats.break_even),
    )


def _card(state: State, name: str) -> ModelCard:
    info = state.backend().engine.info
    return ModelCard(
        id=name,
        created=state.created,
        max_model_len=info.max_model_tokens,
        page_size=info.page_tokens,
        composition=info.composition,
        components=[pool.component for pool in info.pools],
    )
