"""From a use case to the response that delivers its generation."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from llgtrt.api.delivery import (
    DeliveryLimits,
    JsonGenerationResponse,
    SseGenerationResponse,
)
from llgtrt.api.patience import while_connected
from llgtrt.api.services import services_of
from llgtrt.config import ServerConfig
from llgtrt.serving import Generation


async def answer_chat(request: Request, starting: Coroutine[Any, Any, Generation | bytes]) -> Response:
    """The response to a chat in any API, which may be an object that is there at once.

    Its start may be slow: an input processor may make the prompt.

    Raises:
        ClientDisconnect: the client left before the start was done.
        RequestTimeoutError: the start took too long.
    """
    services = services_of(request)
    if not services.models.starts_slowly:
        return deliver(request, await starting)
    clock = asyncio.get_running_loop().time
    began = clock()
    timeout_s = services.server.request_timeout_s
    started = await while_connected(request, starting, timeout_s, services.metrics)
    return deliver(request, started, clock() - began)


def deliver(request: Request, generation: Generation | bytes, spent_s: float = 0.0) -> Response:
    """The response of a started generation, after so much of its time."""
    if isinstance(generation, bytes):
        return Response(generation, media_type="application/json")
    form = SseGenerationResponse if generation.streaming else JsonGenerationResponse
    services = services_of(request)
    return form(generation, limits_of(services.server, spent_s), services.metrics)


def limits_of(server: ServerConfig, spent_s: float = 0.0) -> DeliveryLimits:
    """The times that a delivery may take, after so much of the request's."""
    timeout_s = server.request_timeout_s
    left_s = None if timeout_s is None else max(timeout_s - spent_s, 0.0)
    return DeliveryLimits(server.ping_interval_s, server.write_timeout_s, left_s)
