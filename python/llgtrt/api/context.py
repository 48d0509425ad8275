"""What every request gets: an id, a line in the metrics, and an answer when a handler fails."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llgtrt.api.errors import error_response
from llgtrt.api.metrics import HttpMetrics

logger = logging.getLogger("llgtrt.requests")

CLIENT_CLOSED = 499
"""Status in the metrics for a request whose client left before the answer began."""

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestContextMiddleware:
    """The outermost layer: ``X-Request-Id``, metrics, the request log."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics, log_requests: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = time.monotonic()
        status = CLIENT_CLOSED

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        scope["llgtrt.send"] = send
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.request(route, scope["method"], status)
            if self._log_requests:
                logger.info(
                    "%s %s %d %.0f ms id=%s",
                    scope["method"],
                    route,
                    status,
                    (time.monotonic() - started) * 1000,
                    request_id.decode(),
                )


class UnhandledErrorMiddleware:
    """Turns an exception that no handler knows into a 500 in OpenAI's form; the process lives on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request."""
        started = False

        async def watch_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watch_start)
        except ClientDisconnect:
            return
        except Exception as error:
            if started:
                # Nothing more can be said; uvicorn closes the connection, as the response is incomplete.
                logger.exception("a request failed after its answer began")
                return
            await error_response(error)(scope, receive, send)


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return uuid.uuid4().hex.encode()
