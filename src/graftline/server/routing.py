"""Routes of this server: strict JSON bodies, and the server's state at hand."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from graftline.server.errors import bad_request
from graftline.server.responses import ErrorBody
from graftline.server.state import State


class StrictJsonRequest(Request):
    """A request whose JSON has no NaN and no broken characters: both would come back to bite later."""

    async def json(self) -> Any:
        """The body.

        Raises:
            ApiError: it is not JSON.
        """
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise bad_request(f"the body is not JSON: {error}", code="invalid_json") from error


class StrictJsonRoute(APIRoute):
    """A route that reads its body by `StrictJsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the other kind of request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictJsonRequest(request.scope, request.receive))

        return strict


def state_of(request: Request) -> State:
    """The server's state."""
    state: State = request.app.state.server
    return state


AppState = Annotated[State, Depends(state_of)]


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors of a route, for the OpenAPI document."""
    return {status: {"model": ErrorBody} for status in statuses}
