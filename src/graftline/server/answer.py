"""A run as one answer, for requests that don't stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from graftline.server.job import ScoredToken
from graftline.server.responses import FinishReason
from graftline.server.run import Run


@dataclass(frozen=True, slots=True)
class Collected:
    """One whole answer."""

    index: int
    text: str
    scored: tuple[ScoredToken, ...]
    finish: FinishReason


async def collect(run: Run, request: Request) -> list[Collected]:
    """All answers, in the order of their index. The run ends early when the client goes.

    Raises:
        ApiError: the engine failed, or the client has gone.
    """
    gone = asyncio.ensure_future(_disconnected(request))
    gone.add_done_callback(lambda task: None if task.cancelled() else run.close())
    texts: list[list[str]] = [[] for _ in run.choices]
    scored: list[list[ScoredToken]] = [[] for _ in run.choices]
    finish: list[FinishReason] = ["stop" for _ in run.choices]
    try:
        async for piece in run.pieces():
            texts[piece.choice].append(piece.text)
            scored[piece.choice].extend(piece.scored)
            finish[piece.choice] = piece.finish or finish[piece.choice]
    finally:
        gone.cancel()
        run.close()
    return [Collected(i, "".join(texts[i]), tuple(scored[i]), finish[i]) for i in range(len(run.choices))]


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def json_answer(body: BaseModel, headers: Mapping[str, str] | None = None) -> Response:
    """A model as the answer."""
    return Response(body.model_dump_json(), media_type="application/json", headers=dict(headers or {}))
