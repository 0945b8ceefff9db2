"""Routes that tell how the server is, and the ones that reset its cache."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from fastapi import APIRouter, Response

from graftline import __version__
from graftline.engine.api import PoolUse
from graftline.server.errors import ApiError, unavailable
from graftline.server.metrics import CONTENT_TYPE
from graftline.server.responses import (
    CacheStats,
    Lost,
    ModelCard,
    ModelList,
    Pool,
    Reset,
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
    info = state.backend().engine.info
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
        pools=_pools(info.pools),
    )


@router.get("/cache/stats", responses=failures(401, 403, 503))
async def cache_stats(state: AppState) -> CacheStats:
    """Counters since the start, and who has the slots now."""
    stats = await asyncio.to_thread(state.backend().engine.stats)
    return CacheStats(
        prompt_tokens=stats.prompt_tokens,
        reused_tokens=stats.reused_tokens,
        computed_tokens=stats.computed_tokens,
        generated_tokens=stats.generated_tokens,
        lost_tokens=[
            Lost(component=component, reason=reason, tokens=tokens)
            for (component, reason), tokens in stats.lost_tokens.items()
        ],
        evicted_slots=dict(stats.evicted_slots),
        skipped_checkpoints=stats.skipped_checkpoints,
        preemptions=stats.preemptions,
        requests_running=stats.running,
        requests_waiting=stats.waiting,
        pools=_pools(stats.pools),
    )


@router.post("/flush_cache", responses=failures(401, 403, 503))
@router.post("/reset_prefix_cache", responses=failures(401, 403, 503))
async def reset_prefix_cache(state: AppState) -> Reset:
    """Frees everything that no running request needs. Needs the admin key when there is one."""
    return Reset(freed_slots=await asyncio.to_thread(state.backend().engine.clear_cache))


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


def _pools(pools: Sequence[PoolUse]) -> list[Pool]:
    return [Pool(**dataclasses.asdict(pool)) for pool in pools]
