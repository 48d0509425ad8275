"""Triton's routes that generate: ``generate``, ``generate_stream`` and ``infer``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from llgtrt.api.answering import deliver, limits_of
from llgtrt.api.body import read_json_body, request_body
from llgtrt.api.responses import generation
from llgtrt.api.routing import new_router
from llgtrt.api.services import Services, services_of
from llgtrt.api.triton_tensors import TensorResponse, read_tensors
from llgtrt.serving import TritonRequest, TritonService, in_proportion
from llgtrt.serving.protocol.triton import check_inputs, read_inputs

router = new_router("triton")

MODEL = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
PATH = "/v2/models/{name:path}"
VERSION_PATH = "/v2/models/{name:path}/versions/{version}"
LENGTH_HEADER = "inference-header-content-length"


@router.post(
    PATH + "/generate",
    summary="Continue a text, or several",
    openapi_extra={**request_body("TritonRequest"), "parameters": [MODEL]},
    responses=generation("An object with text_output."),
    response_model=None,
)
@router.post(VERSION_PATH + "/generate", include_in_schema=False)
async def generate(request: Request) -> Response:
    """Triton's generate extension with the inputs of the TensorRT-LLM ensemble."""
    services = services_of(request)
    inputs = await _inputs(request, services)
    return deliver(
        request, await _model(services, request).start(*_target(request), inputs, "generate", None)
    )


@router.post(
    PATH + "/generate_stream",
    summary="Continue a text, or several, as server-sent events",
    openapi_extra={**request_body("TritonRequest"), "parameters": [MODEL]},
    responses=generation("Events with the new part of text_output; nothing marks the last one."),
    response_model=None,
)
@router.post(VERSION_PATH + "/generate_stream", include_in_schema=False)
async def generate_stream(request: Request) -> Response:
    """Triton's generate extension, streamed."""
    services = services_of(request)
    inputs = await _inputs(request, services)
    return deliver(
        request, await _model(services, request).start(*_target(request), inputs, "generate_stream", None)
    )


@router.post(
    PATH + "/infer",
    summary="Continue a text, or several, given as tensors",
    openapi_extra={**request_body("InferRequest"), "parameters": [MODEL]},
    responses=generation("An object with the outputs as tensors."),
    response_model=None,
)
@router.post(VERSION_PATH + "/infer", include_in_schema=False)
async def infer(request: Request) -> Response:
    """The inference protocol of KServe and Triton, with binary tensor data where the client uses it."""
    services = services_of(request)
    target = _target(request)
    _model(services, request).find(*target)
    body = await _body(request, services)
    tensors = await in_proportion(len(body), read_tensors, body, request.headers.get(LENGTH_HEADER))
    inputs = await in_proportion(len(body), check_inputs, tensors.inputs, len(body))
    binary = not tensors.logits_as_text
    started = await _model(services, request).start(
        *target, inputs, "infer", list(tensors.outputs), binary=binary
    )
    return TensorResponse(started, limits_of(services.server), services.metrics, tensors)


async def _inputs(request: Request, services: Services) -> TritonRequest:
    body = await _body(request, services)
    return await in_proportion(len(body), read_inputs, body)


async def _body(request: Request, services: Services) -> bytes:
    server = services.server
    return await read_json_body(
        request, most_bytes=server.max_body_bytes, timeout_s=server.header_timeout_s, any_type=True
    )


def _model(services: Services, request: Request) -> TritonService:
    return services.models.find(request.path_params["name"]).triton


def _target(request: Request) -> tuple[str, str | None]:
    """Name and version of the model in the path."""
    return request.path_params["name"], request.path_params.get("version")
