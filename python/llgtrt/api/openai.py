"""OpenAI's routes: chat, completions and models.

Bodies are parsed by hand: FastAPI's own parsing answers 422, accepts NaN, and fails on a lone surrogate.
"""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from llgtrt.api.body import read_json_body
from llgtrt.api.delivery import (
    DeliveryLimits,
    GenerationResponse,
    JsonGenerationResponse,
    SseGenerationResponse,
)
from llgtrt.api.services import Services, services_of
from llgtrt.serving import ChatRequest, CompletionRequest, Generation, parse_request

router = APIRouter()

Model = TypeVar("Model", ChatRequest, CompletionRequest)


def _body(model: str) -> dict[str, Any]:
    """The request body for the OpenAPI document, which cannot see it in the function's signature."""
    reference = {"$ref": f"#/components/schemas/{model}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}


@router.post(
    "/v1/chat/completions",
    tags=["openai"],
    summary="Answer a conversation",
    openapi_extra=_body("ChatRequest"),
    response_model=None,
)
async def chat_completions(request: Request) -> Response:
    """Streams server-sent events where the body says `stream: true`, else answers with one object."""
    services = services_of(request)
    chat = await _read(request, services, ChatRequest)
    return _deliver(services, await services.chat.start(chat))


@router.post(
    "/v1/completions",
    tags=["openai"],
    summary="Continue a text",
    openapi_extra=_body("CompletionRequest"),
    response_model=None,
)
async def completions(request: Request) -> Response:
    """Streams server-sent events where the body says `stream: true`, else answers with one object."""
    services = services_of(request)
    completion = await _read(request, services, CompletionRequest)
    return _deliver(services, await services.completions.start(completion))


@router.head("/v1/models", include_in_schema=False)
@router.get("/v1/models", tags=["openai"], summary="List the served model", response_model=None)
async def list_models(request: Request) -> Response:
    """OpenAI's list of models; it holds the one that is served."""
    return JSONResponse({"object": "list", "data": [services_of(request).model.object()]})


@router.head("/v1/models/{name:path}", include_in_schema=False)
@router.get(
    "/v1/models/{name:path}", tags=["openai"], summary="Describe the served model", response_model=None
)
async def get_model(request: Request) -> Response:
    """One model; a name that is not served is 404."""
    model = services_of(request).model
    model.resolve(request.path_params["name"])
    return JSONResponse(model.object())


async def _read(request: Request, services: Services, model: type[Model]) -> Model:
    body = await read_json_body(
        request, most_bytes=services.server.max_body_bytes, timeout_s=services.server.header_timeout_s
    )
    return parse_request(model, body)


def _deliver(services: Services, generation: Generation) -> GenerationResponse:
    server = services.server
    limits = DeliveryLimits(server.ping_interval_s, server.write_timeout_s, server.request_timeout_s)
    form = SseGenerationResponse if generation.streaming else JsonGenerationResponse
    return form(generation, limits, services.metrics)
