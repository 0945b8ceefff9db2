"""Errors as the OpenAI API shapes them, for every status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from graftline.errors import CapacityError, ConfigError, EngineClosedError, GraftlineError

RETRY_AFTER_S = 1
"""A full queue moves within a step or two of the engine."""

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}


class ApiError(HTTPException):
    """An answer that is an error.

    Args:
        status: HTTP status.
        message: what was wrong, with the value and the way out.
        param: request field concerned, dotted, with indices in brackets.
        code: one word for programs.
        headers: more headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The JSON body: message, type, param and code under `error`."""
        kind = TYPES.get(
            self.status_code, "invalid_request_error" if self.status_code < 500 else "server_error"
        )
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}

    def json(self) -> str:
        """The JSON body as text."""
        return json.dumps(self.body(), ensure_ascii=False)

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(), status_code=self.status_code, headers=self.headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400."""
    return ApiError(400, message, param, code)


def unavailable(message: str, code: str) -> ApiError:
    """A 503 that may be tried again."""
    return ApiError(503, message, code=code, headers={"Retry-After": str(RETRY_AFTER_S)})


def internal(request_id: str) -> ApiError:
    """A 500 that tells nothing but where to look."""
    return ApiError(
        500, f"the server failed; look for request {request_id} in its log", code="internal_error"
    )


def from_engine(error: GraftlineError) -> ApiError:
    """What the engine refused, as an answer."""
    if isinstance(error, CapacityError):
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        return ApiError(429, "too many requests are waiting; try again", code="queue_full", headers=headers)
    if isinstance(error, EngineClosedError):
        return unavailable("the engine takes no more requests", "engine_closed")
    assert isinstance(error, ConfigError)
    return bad_request(str(error))


def param_name(location: Sequence[int | str]) -> str | None:
    """A validation error's place as a request field: `messages[0].content`; None for the body as a whole."""
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part not in ("body", "query", "path", "header") and part.isidentifier():
            name += f".{part}" if name else part
    return name or None


def from_validation(error: RequestValidationError, content_type: str) -> ApiError:
    """What is wrong with a request, for one field: the first that is wrong."""
    first = _telling(error)
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "syntax error")
        return bad_request(f"the body is not JSON: {reason}", code="invalid_json")
    if tuple(first["loc"]) == ("body",) and "json" not in content_type:
        what = f"'{content_type[:80]}'" if content_type else "missing"
        return ApiError(415, f"Content-Type is {what}; send application/json", code="unsupported_media_type")
    param = param_name(_schema_free(first["loc"], error))
    return bad_request(f"{param or 'body'}: {first['msg']}", param, first["type"])


def _telling(error: RequestValidationError) -> Any:
    """Of a field that may have several forms the error of the form that was most likely meant.

    That is one about a value, not about a type, and the deepest.
    """
    errors = error.errors()
    field = errors[0]["loc"][:2]
    same = [one for one in errors if one["loc"][:2] == field]
    return max(
        same, key=lambda one: (not one["type"].endswith("_type"), len(_schema_free(one["loc"], error)))
    )


def _schema_free(location: Sequence[int | str], error: RequestValidationError) -> list[int | str]:
    """A place without the names of union members, which pydantic puts in and no client knows."""
    kept: list[int | str] = list(location[:1])
    value: Any = error.body
    for part in location[1:]:
        if isinstance(part, int) or (isinstance(value, Mapping) and part in value):
            kept.append(part)
            value = _item(value, part)
        elif isinstance(value, Mapping) and part == location[-1]:
            kept.append(part)  # a field that is missing
    return kept


def _item(value: Any, key: int | str) -> Any:
    try:
        return value[key]
    except (TypeError, KeyError, IndexError):
        return None


def install(app: FastAPI) -> None:
    """Answers every error of an app in this shape."""

    async def api_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def validation(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return from_validation(error, request.headers.get("content-type", "")).response()

    async def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        codes = {404: "path_not_found", 405: "method_not_allowed"}
        made = ApiError(error.status_code, str(error.detail), code=codes.get(error.status_code))
        response = made.response()
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)
