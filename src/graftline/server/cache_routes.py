"""Routes that tell of the cache and change it: tiers, stores, sessions, explanations."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from graftline.cache.explain import as_json
from graftline.cache.flow import Flow
from graftline.engine.api import EngineStats, PoolUse
from graftline.errors import ConfigError
from graftline.plan import Tier
from graftline.server.errors import ApiError, bad_request, unavailable
from graftline.server.responses import (
    BreakEvenBody,
    CacheStats,
    Closed,
    Dropped,
    Lost,
    Moved,
    Pool,
    Reset,
    ShortfallCount,
    StoreBody,
    StoreFault,
    Stores,
)
from graftline.server.routing import AppState, StrictJsonRoute, failures
from graftline.server.schemas import MAX_ID
from graftline.tiers.store.base import StoreError
from graftline.tiers.store.guard import StoreFigures
from graftline.tiers.worth import BreakEven

router = APIRouter(route_class=StrictJsonRoute, tags=["cache"])

TierName = Literal["device", "host", "store"]
URL_MAX = 2048


class StoreRequest(BaseModel):
    """Which store."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Annotated[str, Field(min_length=1, max_length=URL_MAX, description="As for `--store`.")]


class StoreQuery(BaseModel):
    """Which store, in a query."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[str, Field(min_length=1, max_length=URL_MAX, description="As `/cache/stats` shows it.")]


class TierQuery(BaseModel):
    """Which tier, in a query."""

    model_config = ConfigDict(extra="forbid")

    tier: Annotated[TierName, Field(description="Which tier is emptied; a store for all who use it.")]


@router.get("/cache/stats", responses=failures(401, 403, 503))
async def cache_stats(state: AppState) -> CacheStats:
    """Counters since the start, and who has the slots now, tier by tier."""
    return stats_body(await asyncio.to_thread(state.backend().engine.stats))


@router.post("/flush_cache", responses=failures(401, 403, 503))
@router.post("/reset_prefix_cache", responses=failures(401, 403, 503))
async def reset_prefix_cache(state: AppState) -> Reset:
    """Frees everything on the device that no running request needs. Needs the admin key when there is one."""
    return Reset(freed_slots=await asyncio.to_thread(state.backend().engine.clear_cache))


@router.post("/cache/flush", responses=failures(400, 401, 403, 503))
async def flush(state: AppState, query: Annotated[TierQuery, Query()]) -> Reset:
    """Frees everything in one tier that no running request needs. Needs the admin key when there is one."""
    try:
        freed = await asyncio.to_thread(state.backend().engine.clear_cache, Tier[query.tier.upper()])
    except StoreError as error:
        raise unavailable(f"the store could not be emptied: {error.message}", "store_failed") from error
    return Reset(freed_slots=freed)


@router.post("/cache/stores", responses=failures(400, 401, 403, 413, 415, 503))
async def attach(body: StoreRequest, state: AppState) -> Stores:
    """Begins to use one more store, below those that are there. Needs the admin key when there is one."""
    engine = state.backend().engine
    try:
        await asyncio.to_thread(engine.attach_store, body.url)
    except ConfigError as error:
        raise bad_request(f"{error.message}; {error.hint}" if error.hint else error.message, "url") from error
    except StoreError as error:
        raise unavailable(f"the store cannot be used: {error.message}", "store_failed") from error
    return await _stores(state)


@router.delete("/cache/stores", responses=failures(400, 401, 403, 404, 503))
async def detach(state: AppState, query: Annotated[StoreQuery, Query()]) -> Stores:
    """Stops to use a store and closes it. Needs the admin key when there is one."""
    if not await asyncio.to_thread(state.backend().engine.detach_store, query.url):
        raise ApiError(404, f"no store '{query.url[:200]}' is attached", "url", "store_not_found")
    return await _stores(state)


@router.post("/v1/sessions/{session_id}/close", responses=failures(400, 401, 403, 503))
async def close_session(session_id: str, state: AppState) -> Closed:
    """Ends a session: what it would come back to is not kept for it any more."""
    name = session_id[:MAX_ID]
    return Closed(closed=await asyncio.to_thread(state.backend().engine.close_session, name))


@router.get("/cache/explain/{request_id}", responses=failures(400, 401, 403, 404, 409, 503))
async def explain(request_id: str, state: AppState) -> dict[str, Any]:
    """Why a request reused what it did. Needs the admin key when there is one."""
    try:
        told = await asyncio.to_thread(state.backend().engine.explain, request_id)
    except ConfigError as error:
        message = "this server does not remember what left its cache; start it with --explain-pages"
        raise ApiError(409, message, code="explain_off") from error
    if told is None:
        raise ApiError(
            404, f"request '{request_id[:200]}' is not known (any more)", "request_id", "unknown_request"
        )
    return as_json(told)


async def _stores(state: AppState) -> Stores:
    stats = await asyncio.to_thread(state.backend().engine.stats)
    return Stores(stores=[store.url for store in stats.stores])


def stats_body(stats: EngineStats) -> CacheStats:
    """The engine's counters as a body."""
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
        pools=pool_bodies(stats.pools),
        host_pools=pool_bodies(stats.host_pools),
        host_tokens=stats.host_tokens,
        store_tokens=stats.store_tokens,
        coalesced_requests=stats.coalesced_requests,
        coalesced_tokens=stats.coalesced_tokens,
        sessions=stats.sessions,
        moved=moved(stats.flow),
        dropped=dropped(stats.flow),
        shortfalls=[
            ShortfallCount(tier=tier.name.lower(), reason=reason, requests=count, tokens=tokens)
            for (tier, reason), count in stats.shortfalls.items()
            for tokens in [stats.shortfall_tokens[tier, reason]]
        ],
        break_even=break_even_body(stats.break_even),
        stores=[store_body(store) for store in stats.stores],
    )


def break_even_body(worth: BreakEven | None) -> BreakEvenBody | None:
    """Speeds as a body."""
    return None if worth is None else BreakEvenBody(**dataclasses.asdict(worth))


def pool_bodies(pools: Iterable[PoolUse]) -> list[Pool]:
    """Pools as bodies."""
    return [Pool(**dataclasses.asdict(pool)) for pool in pools]


def moved(flow: Flow | None) -> list[Moved]:
    """What moved between tiers."""
    if flow is None:
        return []
    return [
        Moved(
            component=component,
            source=source.name.lower(),
            target=target.name.lower(),
            pages=pages,
            bytes=flow.bytes[component, source, target],
        )
        for (component, source, target), pages in flow.pages.items()
    ]


def dropped(flow: Flow | None) -> list[Dropped]:
    """What was given up between tiers."""
    if flow is None:
        return []
    return [
        Dropped(source=source.name.lower(), target=target.name.lower(), reason=reason, count=count)
        for (source, target, reason), count in flow.dropped.items()
    ]


def store_body(figures: StoreFigures) -> StoreBody:
    """One store's figures."""
    return StoreBody(
        url=figures.url,
        calls=dict(figures.calls),
        seconds=dict(figures.seconds),
        faults=faults(figures),
        hits=figures.hits,
        misses=figures.misses,
        read_bytes=figures.read_bytes,
        written_bytes=figures.written_bytes,
        left_alone_s=figures.left_alone_s,
    )


def faults(figures: StoreFigures) -> list[StoreFault]:
    """Calls that failed, and objects that were not taken."""
    bad = {("read", reason): count for reason, count in figures.bad.items()}
    return [
        StoreFault(operation=operation, reason=reason, count=count)
        for (operation, reason), count in {**figures.errors, **bad}.items()
    ]
