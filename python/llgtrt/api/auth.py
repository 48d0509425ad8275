"""The API key: everything but the probes and the documentation needs it."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from llgtrt.api.errors import HttpError, error_response

OPEN_PATHS = frozenset({"/docs", "/health", "/openapi.json", "/v1/health/live", "/v1/health/ready"})
"""Denied is the default: a new route needs the key without anybody remembering to say so."""


class ApiKeyMiddleware:
    """Answers 401 unless the request carries ``Authorization: Bearer KEY``."""

    def __init__(self, app: ASGIApp, api_key: str, root_path: str = "") -> None:
        self._app = app
        self._key = api_key.encode()
        self._open = OPEN_PATHS | {root_path + path for path in OPEN_PATHS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an authorized request on."""
        if scope["type"] != "http" or scope["path"] in self._open or self._authorized(scope):
            await self._app(scope, receive, send)
            return
        error = HttpError(
            401,
            "Incorrect or missing API key.",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await error_response(error)(scope, receive, send)

    def _authorized(self, scope: Scope) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return False
        scheme, _, key = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(key.strip(), self._key)
