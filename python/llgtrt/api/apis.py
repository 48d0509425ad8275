"""Puts the routes of an :class:`~llgtrt.serving.apis.Api` on HTTP."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from llgtrt.api.answering import answer_chat
from llgtrt.api.body import read_request, request_body
from llgtrt.api.patience import while_connected
from llgtrt.api.responses import OF_BODIES, errors, generation, json_object
from llgtrt.api.routing import new_router
from llgtrt.api.services import services_of
from llgtrt.serving import Generation
from llgtrt.serving.apis import Api, GenerationRoute, ObjectRoute

_NAME = re.compile(r"{(\w+)}")


def router_of(api: Api) -> APIRouter:
    """The routes of an API."""
    router = new_router(api.name)
    for route in api.routes:
        if isinstance(route, GenerationRoute):
            router.post(
                route.path,
                summary=route.summary,
                openapi_extra=request_body(route.request.__name__),
                responses=generation(route.answers),
                response_model=None,
                name=_name(route),
            )(_generation(route.request, route.start))
        else:
            for path in route.other_paths:
                router.add_api_route(
                    path, _object(route), methods=[route.method], include_in_schema=False, response_model=None
                )
            router.api_route(
                route.path,
                methods=[route.method],
                summary=route.summary,
                openapi_extra=_parameters(route),
                responses={
                    **json_object(route.answers, is_list=route.lists),
                    **(OF_BODIES if route.request else errors(400, 404)),
                },
                response_model=None,
                name=_name(route),
            )(_object(route))
    return router


def request_models(apis: tuple[Api, ...]) -> list[type[BaseModel]]:
    """The models of the bodies of some APIs."""
    return [route.request for api in apis for route in api.routes if route.request is not None]


def _generation(
    model: type[BaseModel], start: Callable[[Any], Awaitable[Generation | bytes]]
) -> Callable[[Request], Awaitable[Response]]:
    async def started(body: BaseModel) -> Generation | bytes:
        return await start(body)

    async def endpoint(request: Request) -> Response:
        body = await read_request(request, services_of(request).server, model)
        return await answer_chat(request, started(body))

    return endpoint


def _object(route: ObjectRoute) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body: Any
        if route.request is not None:
            body = await read_request(request, services_of(request).server, route.request)
        else:
            query = {name: request.query_params[name] for name in route.query if name in request.query_params}
            body = {**query, **request.path_params}
        if route.slow:
            services = services_of(request)
            timeout_s = services.server.request_timeout_s
            answer = await while_connected(request, _answered(route, body), timeout_s, services.metrics)
        else:
            answer = await route.answer(body)
        return Response(answer, media_type="application/json")

    return endpoint


async def _answered(route: ObjectRoute, body: Any) -> bytes:
    return await route.answer(body)


def _name(route: GenerationRoute | ObjectRoute) -> str:
    """The operation's name in the OpenAPI document."""
    method = "post" if isinstance(route, GenerationRoute) else route.method.lower()
    return "_".join([method, *re.findall(r"\w+", route.path)])


def _parameters(route: ObjectRoute) -> dict[str, Any] | None:
    """Declared by hand: for a parameter of its own FastAPI adds a 422 that never comes."""
    if route.request is not None:
        return request_body(route.request.__name__)
    places = [(name, "path") for name in _NAME.findall(route.path)] + [
        (name, "query") for name in route.query
    ]
    return {
        "parameters": [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for name, place in places
        ]
    }
