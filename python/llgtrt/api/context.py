"""What every request gets: an id, a line in the metrics, and an answer when a handler fails."""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llgtrt.api.errors import error_response
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.record import GENERATION, RECORD, note
from llgtrt.logs import REQUEST_ID
from llgtrt.serving.caller import CALLER, Caller

logger = logging.getLogger("llgtrt.requests")

PROBES = frozenset(
    {
        "/",
        "/health",
        "/metrics",
        "/ping",
        "/v1/health/live",
        "/v1/health/model",
        "/v1/health/ready",
        "/v1/models/{name:path}/loaded",
        "/v2/health/live",
        "/v2/health/ready",
    }
)
"""Routes that machines ask every few seconds: they are in the metrics, not in the log."""

CLIENT_CLOSED = 499
"""Status in the metrics for a request whose client left before the answer began."""

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is over.

    Attributes:
        scope: its scope.
        route: the route that answered, or ``unknown``.
        status: of the answer.
        began_ns: when it came, in nanoseconds since the epoch.
        record: what its line in the log says.
    """

    scope: Scope
    route: str
    status: int
    began_ns: int
    record: dict[str, Any]


class RequestTelemetry(Protocol):
    """Watches requests; :class:`llgtrt.api.telemetry.Telemetry` is one."""

    def request(self, ended: Ended) -> str | None:
        """Takes a request that is over, and gives the id of its trace."""


class RequestContextMiddleware:
    """The outermost layer: ``X-Request-Id``, metrics, the request log, written at the very end."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: HttpMetrics,
        log_requests: bool,
        telemetry: RequestTelemetry | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        token = REQUEST_ID.set(request_id.decode())
        record: dict[str, Any] = {}
        scope[RECORD] = record
        answer_headers: dict[str, str] = {}
        caller = CALLER.set(Caller(request_id.decode(), scope, record, answer_headers))
        started = time.monotonic()
        began_ns = 0 if self._telemetry is None else time.time_ns()
        status = CLIENT_CLOSED

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                noted = [(name.lower().encode(), value.encode()) for name, value in answer_headers.items()]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id), *noted]
            await send(message)

        scope["llgtrt.send"] = send
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            self._metrics.request(route, scope["method"], status)
            if self._telemetry is not None and route not in PROBES:
                ended = Ended(scope, route, status, began_ns, record)
                note(scope, trace_id=self._telemetry.request(ended))
            if self._log_requests and route not in PROBES:
                client = scope.get("client")
                fields = {
                    "method": scope["method"],
                    "path": scope["path"][:200] if route == "unknown" else route,
                    "status": status,
                    "ms": round((time.monotonic() - started) * 1000, 1),
                    "client": f"{client[0]}:{client[1]}" if client else "unix",
                    **record,
                }
                logger.info("request", extra={"fields": fields})
            REQUEST_ID.reset(token)
            CALLER.reset(caller)
            # The connection holds its last scope for as long as it is open, and in these the scope leads back
            # to the connection: without them what the request held is free at once, and not by Python's next
            # full collection.
            for held in (GENERATION, "llgtrt.send", "extensions"):
                scope.pop(held, None)


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
    return secrets.token_hex(16).encode()
