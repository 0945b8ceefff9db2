"""Bearer keys: compared as digests, in constant time, before a body is read."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from graftline.server.config import is_loopback
from graftline.server.errors import ApiError

OPEN_PATHS = frozenset(
    {"/health", "/ready", "/ping", "/metrics", "/version", "/docs", "/redoc", "/openapi.json"}
)
ADMIN_PATHS = frozenset({"/reset_prefix_cache", "/flush_cache", "/cache/flush", "/cache/stores"})
ADMIN_FOLDERS = ("/cache/explain/",)


def for_admins(path: str) -> bool:
    """Whether a path needs the admin key, if there is one."""
    return path in ADMIN_PATHS or path.startswith(ADMIN_FOLDERS)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class Keys:
    """A set of keys of which only the digests are kept.

    Args:
        keys: may be empty.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accept(self, key: str) -> bool:
        """Whether it is one of them; takes as long whichever it is."""
        wanted = _digest(key)
        found = False
        for digest in self._digests:
            found |= secrets.compare_digest(digest, wanted)
        return found


class AuthMiddleware:
    """Refuses requests without a key where one is needed.

    Args:
        app: what comes after.
        api_keys: for everything that is not public; none leaves it open.
        admin_keys: for everything too, and needed for the admin paths if there is one.
    """

    def __init__(self, app: ASGIApp, api_keys: Keys, admin_keys: Keys) -> None:
        self._app = app
        self._api_keys = api_keys
        self._admin_keys = admin_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Lets the request through, or answers 401 or 403."""
        if scope["type"] != "http" or self._allowed(scope):
            await self._app(scope, receive, send)
            return
        if self._foreign(scope):
            error = ApiError(
                403,
                "without an API key this server answers requests to this machine's own name only; set one",
                code="host_not_allowed",
            )
            await error.response()(scope, receive, send)
            return
        which = "the admin API key" if for_admins(scope["path"]) and self._admin_keys else "an API key"
        error = ApiError(
            401,
            f"this needs {which}; send it as 'Authorization: Bearer KEY'",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await error.response()(scope, receive, send)

    def _foreign(self, scope: Scope) -> bool:
        """Whether a request without a key came for another name than this machine's.

        A web page can give its own name this machine's address and then call the server from the browser of
        somebody who sits here; what gives it away is the name.
        """
        if self._api_keys or scope["path"] in OPEN_PATHS:
            return False
        host = Headers(scope=scope).get("host", "localhost")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        return not is_loopback(name.strip("[]").lower())

    def _allowed(self, scope: Scope) -> bool:
        path = scope["path"]
        if self._foreign(scope):
            return False
        if scope["method"] == "OPTIONS" or path in OPEN_PATHS:
            return True
        needs_admin = bool(self._admin_keys) and for_admins(path)
        if not needs_admin and not self._api_keys:
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        key = key.strip()
        by_admin = self._admin_keys.accept(key)
        by_user = self._api_keys.accept(key)
        return by_admin or (by_user and not needs_admin)
