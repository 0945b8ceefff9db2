"""A run as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fastapi.sse import EventSourceResponse, format_sse_event
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from graftline.server.errors import ApiError, internal
from graftline.server.job import Piece
from graftline.server.report import cache_report, timings, usage
from graftline.server.responses import Chunk
from graftline.server.run import Run
from graftline.server.schemas import StreamOptions

logger = logging.getLogger(__name__)

PING = format_sse_event(comment="ping")
DONE = format_sse_event(data_str="[DONE]")


class Chunks(Protocol):
    """Makes chunks of one kind of answer."""

    def piece(self, piece: Piece) -> Chunk:
        """A chunk of what an answer gained."""

    def empty(self) -> Chunk:
        """A chunk without choices."""


@dataclass(frozen=True, slots=True)
class UsageWishes:
    """Where usage is told: in a last chunk of its own, and in every chunk."""

    at_end: bool = False
    always: bool = False

    @classmethod
    def of(cls, options: StreamOptions | None) -> UsageWishes:
        """From the request's `stream_options`."""
        if options is None:
            return cls()
        always = bool(options.continuous_usage_stats)
        return cls(bool(options.include_usage) or always, always)


async def events(run: Run, chunks: Chunks, wishes: UsageWishes) -> AsyncGenerator[bytes, None]:
    """Everything that a stream sends, pings aside. Closes the run at its end."""
    try:
        async for piece in run.pieces():
            yield _event(_with_reports(chunks.piece(piece), run, wishes))
        if wishes.at_end:
            yield _event(chunks.empty().model_copy(update=_reports(run)))
        yield DONE
    except ApiError as error:
        yield format_sse_event(data_str=error.json())
    except Exception:
        logger.exception("request %s failed", run.job.request_id)
        yield format_sse_event(data_str=internal(run.job.request_id).json())
    finally:
        run.close()


def _event(chunk: BaseModel) -> bytes:
    return format_sse_event(data_str=chunk.model_dump_json(exclude_unset=True))


def _with_reports(chunk: Chunk, run: Run, wishes: UsageWishes) -> Chunk:
    if not wishes.at_end:
        last = all(choice.finished for choice in run.choices)
        return chunk.model_copy(update=_reports(run, with_usage=False)) if last else chunk
    return chunk.model_copy(update={"usage": usage(run.job, run.choices) if wishes.always else None})


def _reports(run: Run, *, with_usage: bool = True) -> Mapping[str, BaseModel]:
    reports: dict[str, BaseModel] = {
        "cache": cache_report(run.job, run.choices),
        "timings": timings(run.job, run.choices),
    }
    return {"usage": usage(run.job, run.choices), **reports} if with_usage else reports


async def with_pings(source: AsyncGenerator[bytes, None], silence_s: float) -> AsyncIterator[bytes]:
    """The source's events, and a comment after each silence, so that proxies keep the connection."""
    following = asyncio.ensure_future(anext(source))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=silence_s)
            if not done:
                yield PING
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            yield event
            following = asyncio.ensure_future(anext(source))
    finally:
        following.cancel()
        await asyncio.wait({following})
        await source.aclose()


class RunResponse(EventSourceResponse):
    """Streams a run; closes it when the stream ends in whatever way.

    When the client goes, Starlette cancels the stream; a generator that waits for a slow client to read is
    not told of that, so the run is closed here and not only in the generator.

    Args:
        run: a started run; owned from now on.
        source: makes the events.
        silence_s: silence after which a comment is sent.
        headers: more headers.
    """

    def __init__(
        self,
        run: Run,
        source: Callable[[], AsyncGenerator[bytes, None]],
        silence_s: float,
        headers: Mapping[str, str],
    ) -> None:
        quiet = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(with_pings(source(), silence_s), headers={**quiet, **headers})
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._run.close()
