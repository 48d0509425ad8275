"""The routes of a Truss: they read a body, have the model answer, and watch the client meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from llgtrt.api.body import read_body
from llgtrt.api.errors import RequestTimeoutError
from llgtrt.api.record import note
from llgtrt.api.routing import new_router
from llgtrt.api.services import Services

from .client import Client
from .definition import ENDPOINTS
from .errors import ModelNotReadyError, TooManyRequestsError, UserCodeError, error_response
from .model import HEALTH_TIMEOUT_S, Model

HEALTH_MARGIN_S = 0.5

PATHS = {name: f"/v1/{name.replace('_', '/')}" for name in ENDPOINTS}
PATHS["predict"] = "/v1/models/{name:path}:predict"


class ModelService:
    """A model with what the routes share.

    Args:
        model: the model.
        services: the server's.
        most_requests: requests of the model at the same time.
    """

    def __init__(self, model: Model, services: Services, most_requests: int) -> None:
        self.model = model
        self.services = services
        self._most = most_requests
        self.requests = 0

    def enter(self, name: str) -> None:
        """Takes a request in.

        Raises:
            ModelNotReadyError: the server is draining, or the engine has failed.
            TooManyRequestsError: too many are in.
        """
        if self.services.models.health()[0] != "ready":
            raise ModelNotReadyError(name)
        if self.requests >= self._most:
            raise TooManyRequestsError(f"More than {self._most} requests are waiting for the model.")
        self.requests += 1

    def leave(self) -> None:
        """Undoes :meth:`enter`."""
        self.requests -= 1

    async def check_ready(self, name: str) -> None:
        """Asks the model, or else the engine.

        Raises:
            ModelNotReadyError: it is not.
        """
        if self.model.definition.is_healthy is None:
            healthy = self.services.models.health()[0] == "ready"
        else:
            asking = asyncio.wrap_future(self.model.loop.submit(self.model.is_healthy()))
            # Its own limit is of no use where the model blocks its loop.
            await asyncio.wait({asking}, timeout=HEALTH_TIMEOUT_S + HEALTH_MARGIN_S)
            healthy = asking.done() and bool(asking.result())
            asking.cancel()
        if not healthy:
            raise ModelNotReadyError(name)


def model_router(service: ModelService) -> APIRouter:
    """The routes, which come before the server's own."""
    router = new_router("model")

    async def root(_request: Request) -> Response:
        return JSONResponse(True)

    async def loaded(request: Request) -> Response:
        if service.services.models.health()[0] != "ready":
            return error_response(ModelNotReadyError(request.path_params["name"]))
        return JSONResponse({})

    async def ready(request: Request) -> Response:
        try:
            await service.check_ready(request.path_params["name"])
        except ModelNotReadyError as error:
            return error_response(error)
        return JSONResponse({})

    def get(path: str, endpoint: Callable[..., Awaitable[Response]], summary: str) -> None:
        parameters = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
        router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            summary=summary,
            response_model=None,
            openapi_extra={"parameters": parameters} if "{" in path else None,
        )

    get("/", root, "Is the process alive")
    get("/v1/models/{name:path}/loaded", loaded, "Is the model loaded")
    get("/v1/models/{name:path}", ready, "Is the model ready")
    for method in ENDPOINTS:
        _add_endpoint(router, service, method)
    return router


def _add_endpoint(router: APIRouter, service: ModelService, method: str) -> None:
    async def endpoint(request: Request) -> Response:
        return ModelResponse(service, method)

    router.add_api_route(
        PATHS[method],
        endpoint,
        methods=["POST"],
        name=f"model_{method}",
        summary=f"Call {method} of the model",
        response_model=None,
    )


class ModelResponse(Response):
    """Has the model answer a request, beside a watch on its client."""

    def __init__(self, service: ModelService, method: str) -> None:
        self.status_code = 200
        self.background = None
        self._service = service
        self._method = method
        self._started = False
        self._complete = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers."""
        service = self._service
        name = scope["path_params"].get("name") or service.services.models.find(None).model.name
        try:
            service.enter(name)
        except (ModelNotReadyError, TooManyRequestsError) as error:
            await error_response(error)(scope, receive, send)
            return
        try:
            await self._run(scope, receive, send)
        except ClientDisconnect:
            raise
        except Exception as error:
            note(scope, error=type(error).__name__)
            if self._started:
                # The status is said: all that is left is that the client does not take it for complete.
                abort = scope.get("extensions", {}).get("llgtrt.abort")
                if abort is not None:
                    abort()
                return
            await error_response(error)(scope, receive, send)
        finally:
            service.leave()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        services, model = self._service.services, self._service.model
        server = services.server
        body = await read_body(
            Request(scope, receive), most_bytes=server.max_body_bytes, timeout_s=server.header_timeout_s
        )
        loop = asyncio.get_running_loop()
        client = Client(model.loop)

        async def write(message: Message) -> None:
            if client.left:
                raise ClientDisconnect
            self._started = True
            self._complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            try:
                await asyncio.wait_for(send(message), server.write_timeout_s)
            except asyncio.TimeoutError:
                services.metrics.disconnect("slow")
                note(scope, outcome="client too slow")
                client.leave()
                raise ClientDisconnect from None

        async def write_from_model(message: Message) -> None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(write(message), loop))

        request = client.request(scope, body)
        answer = model.loop.submit(model.answer(self._method, request, client, body, write_from_model))
        watch = loop.create_task(self._watch(receive, client))
        try:
            await _wait(answer, server.request_timeout_s)
        finally:
            watch.cancel()
            answer.cancel()

    async def _watch(self, receive: Receive, client: Client) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        # It also comes after the end of an answer.
        if not self._complete:
            self._service.services.metrics.disconnect("disconnected")
            client.leave()


async def _wait(answer: Future[None], timeout_s: float | None) -> None:
    """Waits for the model's end.

    Raises:
        RequestTimeoutError: it takes too long.
        UserCodeError: it ended as if it had been cancelled.
        Exception: what it raised.
    """
    waiting = asyncio.wrap_future(answer)
    await asyncio.wait({waiting}, timeout=timeout_s)
    if not waiting.done():
        raise RequestTimeoutError
    if waiting.cancelled():
        raise UserCodeError
    waiting.result()
