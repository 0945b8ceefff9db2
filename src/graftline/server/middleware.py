"""What happens to every request before a route sees it: an id, and a bound on its body."""

from __future__ import annotations

import logging
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graftline.server.errors import ApiError, internal

logger = logging.getLogger(__name__)

_ID = re.compile(r"[\x21-\x7e]{1,128}")


def request_id_of(scope: Scope) -> str:
    """The id that `RequestIdMiddleware` gave."""
    return str(scope["state"]["request_id"])


class RequestIdMiddleware:
    """Gives each request an id, the client's own if it sent one, and puts it on every answer.

    It is the outermost: what is raised inside and not answered becomes a 500 here, with the trace in the
    log only.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Adds the id to the scope's state and to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            logger.exception("request %s failed", request_id)
            if started:
                raise
            await internal(request_id).response()(scope, receive, send_with_id)


class BodyLimitMiddleware:
    """Refuses bodies above a size, by their announced length or while they come in.

    Args:
        app: what comes after.
        max_bytes: largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request through or answers 413."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            await self._error().response()(scope, receive, send)
            return
        read = 0

        async def bounded_receive() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self._max_bytes:
                    raise self._error()
            return message

        await self._app(scope, bounded_receive, send)

    def _error(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_bytes} bytes", code="request_too_large")
