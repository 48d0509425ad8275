"""Runs the methods of a model for one request after another, on the model's loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from llgtrt.hooks.user_loop import UserLoop

from .chunks import Chunks, is_generator
from .client import CURRENT_CLIENT, Client
from .codec import BINARY, is_binary, parse_body, result_response
from .definition import Definition, Method
from .errors import ModelDefinitionError, UserCodeError, client_left, contained

logger = logging.getLogger("llgtrt.truss")

HEALTH_TIMEOUT_S = 10.0
"""How long ``is_healthy`` may take; a model that takes longer is not."""

_ASGI = {"version": "3.0", "spec_version": "2.3"}
"""What responses of the model are told: that they hear of a client that leaves by ``receive``."""


class Model:
    """A loaded model.

    Args:
        definition: its methods.
        loop: where its code runs.
        predict_concurrency: calls of ``predict`` at the same time.
    """

    def __init__(self, definition: Definition, loop: UserLoop, predict_concurrency: int) -> None:
        self.definition = definition
        self.loop = loop
        self._places = asyncio.Semaphore(predict_concurrency)
        self._health: asyncio.Task[Any] | None = None

    async def answer(self, name: str, request: Request, client: Client, body: bytes, send: Send) -> None:
        """Answers a request by the method ``name``. Runs on the model's loop.

        Raises:
            InputParsingError: the body is not what the model takes.
            MethodNotImplementedError: it has no such method.
            HTTPException: the model raised it; 499: the client left.
            UserCodeError: the model failed.
        """
        CURRENT_CLIENT.set(client)
        method = self.definition.endpoint(name)
        binary = is_binary(request)
        inputs = None
        if self.definition.reads_body(name):
            inputs = parse_body(body, binary, self.definition.first(name).input_type)
        async with AsyncExitStack() as place:
            if name == "predict":
                result = await self._predict(inputs, request, client, place)
            else:
                result = await self._step(method, inputs, request, client)
            response = await self._response(result, request, binary, name)
            await _deliver(response, request, client, send, name)

    async def is_healthy(self) -> bool:
        """What the model says of itself. Runs on the model's loop."""
        method = self.definition.is_healthy
        if method is None:
            return True
        # One that hangs is waited for again: probes must not use up the threads.
        if self._health is None:
            self._health = asyncio.ensure_future(self._call(method, ()))
        task = self._health
        await asyncio.wait({task}, timeout=HEALTH_TIMEOUT_S)
        if not task.done():
            logger.warning("is_healthy did not return within %g s", HEALTH_TIMEOUT_S)
            return False
        self._health = None
        try:
            return bool(task.result())
        except (UserCodeError, HTTPException, asyncio.CancelledError):
            return False

    async def _predict(self, inputs: Any, request: Request, client: Client, place: AsyncExitStack) -> Any:
        """The three steps. ``place`` holds the place of ``predict``; for a stream until it is sent."""
        steps = self.definition.steps
        if (preprocess := steps.get("preprocess")) is not None:
            inputs = await self._step(preprocess, inputs, request, client)
        await place.enter_async_context(self._places)
        result = await self._step(steps["predict"], inputs, request, client)
        if not (is_generator(result) or isinstance(result, StreamingResponse)):
            await place.aclose()
        if (postprocess := steps.get("postprocess")) is None:
            return result
        if is_generator(result) or isinstance(result, Response):
            what = "generator (streaming)" if is_generator(result) else "response object"
            with contained("predict"):
                raise ModelDefinitionError(
                    f"If the predict function returns a {what}, you cannot use postprocessing."
                )
        return await self._step(postprocess, result, request, client)

    async def _step(self, method: Method, inputs: Any, request: Request, client: Client) -> Any:
        if client.left:
            raise client_left(method.name)
        return await self._call(method, method.arguments(inputs, request))

    async def _call(self, method: Method, arguments: tuple[Any, ...]) -> Any:
        with contained(method.name):
            if method.is_generator:
                return method.call(*arguments)
            if method.is_async:
                return await method.call(*arguments)
            result = await self.loop.in_thread(_no_stop_iteration, method.call, arguments)
            return await result if inspect.iscoroutine(result) else result

    async def _response(self, result: Any, request: Request, binary: bool, name: str) -> Response:
        if isinstance(result, Response):
            return result
        if is_generator(result):
            chunks = Chunks(result, self.loop, name)
            try:
                if not _wants_json(request):
                    return StreamingResponse(await chunks.begin(), media_type=BINARY)
                result = await chunks.joined()
            except BaseException:
                await chunks.aclose()
                raise
        with contained(name):
            return result_response(result, binary)


async def _deliver(response: Response, request: Request, client: Client, send: Send, name: str) -> None:
    scope = {**request.scope, "asgi": _ASGI}
    try:
        with contained(name):
            await response(scope, client.receive, send)
    finally:
        close = getattr(getattr(response, "body_iterator", None), "aclose", None)
        if close is not None:
            with contained(name):
                await close()


def _no_stop_iteration(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A future cannot hold ``StopIteration``."""
    try:
        return work(*arguments)
    except StopIteration as error:
        raise RuntimeError("StopIteration") from error


def _wants_json(request: Request) -> bool:
    """Whether a stream is to be one JSON text. OpenAI's clients say so and read events nevertheless."""
    if "openai" in request.headers.get("user-agent", "").lower():
        return False
    return request.headers.get("accept") == "application/json"
