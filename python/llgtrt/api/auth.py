"""API keys: everything but the probes and the documentation needs one, and each may have limits."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from llgtrt.api.errors import HttpError, error_response
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.record import note
from llgtrt.config import ApiKey

OPEN_PATHS = frozenset(
    {
        "/docs",
        "/health",
        "/openapi.json",
        "/ping",
        "/v1/health/live",
        "/v1/health/ready",
        "/v2/health/live",
        "/v2/health/ready",
    }
)
"""Denied is the default: a new route needs the key without anybody remembering to say so."""

CLIENT = "llgtrt.api_key"
"""Key of a request's scope: the :class:`Client` that sent it."""

MINUTE_S = 60.0
BUSY_RETRY_S = 1
"""When to come back if as many requests of a key are worked on as may be: nobody knows how long they take."""


class RequestRate:
    """As many requests at once as a minute may have; then places come back evenly over the minute."""

    def __init__(self, per_minute: int) -> None:
        self._interval_s = MINUTE_S / per_minute
        self._full_until = -math.inf
        """When all places are free again."""

    def take(self, now: float) -> float:
        """Takes a place, or gives the seconds until there is one; 0 if it was taken."""
        full_until = max(now, self._full_until) + self._interval_s
        wait = full_until - MINUTE_S - now
        # An interval is no exact binary fraction: a microsecond is no reason to wait.
        if wait > 1e-6:
            return wait
        self._full_until = full_until
        return 0.0


class Client:
    """Who has a key: a name for the log, and what is left of the limits."""

    def __init__(self, key: ApiKey) -> None:
        self.name = key.name
        self.manages_models = key.manages_models
        self._most = key.max_concurrent
        self._running = 0
        self._rate = None if key.requests_per_minute is None else RequestRate(key.requests_per_minute)

    def enter(self, now: float) -> None:
        """Counts a request in. Each that came in must :meth:`leave`.

        Raises:
            HttpError: 429, a limit is reached.
        """
        if self._most is not None and self._running >= self._most:
            raise _limited(f"{self._most} requests of this key are worked on already", BUSY_RETRY_S)
        if self._rate is not None and (wait := self._rate.take(now)) > 0:
            raise _limited("this key has had its requests of this minute", math.ceil(wait))
        self._running += 1

    def leave(self) -> None:
        """Counts a request out."""
        self._running -= 1


class ApiKeyMiddleware:
    """Answers 401 unless the request carries a key, and 429 where the key's limits are reached.

    The key is in ``Authorization: Bearer KEY`` as OpenAI's clients send it, or in ``x-api-key`` as
    Anthropic's do; where both are there, one of them is enough. Limits count POST requests: those make work.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Iterable[ApiKey],
        metrics: HttpMetrics,
        root_path: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._open = OPEN_PATHS | {root_path + path for path in OPEN_PATHS}
        # Found by a digest, so that the time of a comparison tells nothing of a key.
        self._clients: dict[bytes, Client] = {}
        for key in keys:
            self._clients.setdefault(_digest(key.key.encode()), Client(key))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an authorized request on."""
        if scope["type"] != "http" or scope["path"] in self._open:
            await self._app(scope, receive, send)
            return
        client = self._client(scope)
        if client is None:
            await error_response(_unauthorized(scope))(scope, receive, send)
            return
        note(scope, key=client.name)
        scope[CLIENT] = client
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            client.enter(self._clock())
        except HttpError as error:
            self._metrics.key_request(client.name, "limited")
            await error_response(error)(scope, receive, send)
            return
        self._metrics.key_request(client.name, "admitted")
        try:
            await self._app(scope, receive, send)
        finally:
            client.leave()

    def _client(self, scope: Scope) -> Client | None:
        """Who sent the request; ``None`` for nobody known, or a header that is there twice."""
        bearers = [value for name, value in scope["headers"] if name == b"authorization"]
        keys = [value for name, value in scope["headers"] if name == b"x-api-key"]
        if len(bearers) > 1 or len(keys) > 1:
            return None
        for value in bearers:
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer" and (client := self._clients.get(_digest(key))) is not None:
                return client
        return self._clients.get(_digest(keys[0])) if keys else None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key.strip()).digest()


def _unauthorized(scope: Scope) -> HttpError:
    # Clients tell a wrong key from other errors by OpenAI's words (LiteLLM).
    headers = {name for name, _ in scope["headers"]}
    message = (
        "Incorrect API key provided."
        if headers & {b"authorization", b"x-api-key"}
        else "You didn't provide an API key: send it as Authorization: Bearer KEY."
    )
    return HttpError(401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})


def _limited(why: str, retry_after_s: int) -> HttpError:
    headers = {"retry-after": str(retry_after_s)}
    return HttpError(429, f"Rate limit reached: {why}.", code="rate_limit_exceeded", headers=headers)
