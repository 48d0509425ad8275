"""Triton's routes about the server and the model: health, metadata, configuration, statistics, the index."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from llgtrt.api.body import read_json_body
from llgtrt.api.errors import HttpError
from llgtrt.api.metrics import samples
from llgtrt.api.responses import OF_BODIES, errors, json_object
from llgtrt.api.services import Services, services_of
from llgtrt.api.triton import MODEL, PATH, VERSION_PATH
from llgtrt.engine import __version__
from llgtrt.serving import RequestError
from llgtrt.serving.protocol.body_json import parse_json
from llgtrt.serving.protocol.triton import INPUTS, OUTPUTS
from llgtrt.serving.triton import VERSION

router = APIRouter(tags=["triton"])

EXTENSIONS = ["binary_tensor_data", "generate", "model_configuration", "parameters", "statistics"]
NS = 1_000_000_000


@router.head("/v2/health/live", include_in_schema=False)
@router.get(
    "/v2/health/live",
    summary="Is the process alive (Triton)",
    response_class=Response,
    responses={200: {"description": "It is."}},
    response_model=None,
)
async def live() -> Response:
    """200 as long as the event loop turns; the body is empty."""
    return Response()


@router.head("/v2/health/ready", include_in_schema=False)
@router.get(
    "/v2/health/ready",
    summary="May requests be sent here (Triton)",
    response_class=Response,
    responses={200: {"description": "They may."}, **errors(503)},
    response_model=None,
)
async def ready(request: Request) -> Response:
    """200 while requests are accepted; the body is empty."""
    _check_ready(services_of(request))
    return Response()


@router.get(
    "/v2", summary="Describe the server (Triton)", responses=json_object("Its name."), response_model=None
)
async def server_metadata() -> Response:
    """Name, version and extensions of the server."""
    return JSONResponse({"name": "llgtrt", "version": __version__, "extensions": EXTENSIONS})


@router.get("/v2/models/stats", include_in_schema=False)
async def all_stats(request: Request) -> Response:
    """The statistics of all models: there is one."""
    services = services_of(request)
    return JSONResponse({"model_stats": [_stats(services, services.model.name)]})


@router.get(
    PATH + "/ready",
    summary="May requests be sent to the model (Triton)",
    openapi_extra={"parameters": [MODEL]},
    response_class=Response,
    responses={200: {"description": "They may."}, **errors(404, 503)},
    response_model=None,
)
@router.get(VERSION_PATH + "/ready", include_in_schema=False)
async def model_ready(request: Request) -> Response:
    """200 while requests are accepted; the body is empty."""
    services = services_of(request)
    _find(services, request)
    _check_ready(services)
    return Response()


@router.get(
    PATH + "/config",
    summary="The model's configuration (Triton)",
    openapi_extra={"parameters": [MODEL]},
    responses={**json_object("The configuration."), **errors(404)},
    response_model=None,
)
@router.get(VERSION_PATH + "/config", include_in_schema=False)
async def config(request: Request) -> Response:
    """What Triton calls the model's configuration: batch size, inputs and outputs."""
    services = services_of(request)
    info = services.engine.model_info
    parameters = {
        "backend": info.backend,
        "max_sequence_tokens": info.max_sequence_tokens,
        "max_sequences_at_once": info.max_batch_size,
        "vocabulary_size": info.vocab_size,
    }
    body = {
        "name": _find(services, request),
        "platform": "",
        "backend": "llgtrt",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": services.triton.most_sequences,
        "input": [
            {
                "name": name,
                "data_type": _config_type(datatype),
                "dims": dims,
                "optional": name != "text_input",
                "allow_ragged_batch": False,
            }
            for name, (datatype, dims) in INPUTS.items()
        ],
        "output": [
            {"name": name, "data_type": _config_type(datatype), "dims": dims}
            for name, (datatype, dims) in OUTPUTS.items()
        ],
        "model_transaction_policy": {"decoupled": False},
        "parameters": {name: {"string_value": str(value)} for name, value in parameters.items()},
    }
    return JSONResponse(body)


@router.get(
    PATH + "/stats",
    summary="The model's statistics (Triton)",
    openapi_extra={"parameters": [MODEL]},
    responses={**json_object("The statistics."), **errors(404)},
    response_model=None,
)
@router.get(VERSION_PATH + "/stats", include_in_schema=False)
async def stats(request: Request) -> Response:
    """Counts and durations of all requests, whichever route they came by."""
    services = services_of(request)
    return JSONResponse({"model_stats": [_stats(services, _find(services, request))]})


@router.post(
    "/v2/repository/index",
    summary="List the models (Triton)",
    responses={200: {"description": "An array of models with their state."}, **OF_BODIES},
    response_model=None,
)
async def repository_index(request: Request) -> Response:
    """The served model and its adapters; with `ready: true` only if requests are accepted."""
    services = services_of(request)
    server = services.server
    body = await read_json_body(
        request, most_bytes=server.max_body_bytes, timeout_s=server.header_timeout_s, any_type=True
    )
    only_ready = False
    if body.strip():
        try:
            given = parse_json(body)
        except ValueError as error:
            raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
        if not isinstance(given, dict) or not isinstance(given.get("ready", False), bool):
            raise RequestError("The body must be an object; ready must be true or false.", "ready")
        only_ready = given.get("ready", False)
    state, explanation = services.engine.health()
    is_ready = state == "ready"
    entry = {
        "version": VERSION,
        "state": "READY" if is_ready else "UNAVAILABLE",
        "reason": "" if is_ready else explanation or state,
    }
    models = [{"name": one["id"], **entry} for one in services.model.objects()]
    return JSONResponse(models if is_ready or not only_ready else [])


@router.get(
    PATH,
    summary="Describe the model (Triton)",
    openapi_extra={"parameters": [MODEL]},
    responses={**json_object("Its inputs and outputs."), **errors(404)},
    response_model=None,
)
@router.get(VERSION_PATH, include_in_schema=False)
async def model_metadata(request: Request) -> Response:
    """Inputs and outputs with their types and shapes, of which the first dimension is the batch."""
    services = services_of(request)
    body = {
        "name": _find(services, request),
        "versions": [VERSION],
        "platform": "llgtrt",
        "inputs": [
            {"name": name, "datatype": datatype, "shape": [-1, *dims]}
            for name, (datatype, dims) in INPUTS.items()
        ],
        "outputs": [
            {"name": name, "datatype": datatype, "shape": [-1, *dims]}
            for name, (datatype, dims) in OUTPUTS.items()
        ],
    }
    return JSONResponse(body)


def _find(services: Services, request: Request) -> str:
    return services.triton.find(request.path_params["name"], request.path_params.get("version"))


def _check_ready(services: Services) -> None:
    state, explanation = services.engine.health()
    if state != "ready":
        raise HttpError(503, f"{state}: {explanation}" if explanation else state, code=f"not_ready_{state}")


def _config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _stats(services: Services, name: str) -> dict[str, Any]:
    """Triton's statistics, from the core's metrics. The core does not time requests that fail."""
    values = samples(services.engine.metrics())

    def duration(count: float, seconds: float) -> dict[str, int]:
        return {"count": int(count), "ns": int(seconds * NS)}

    def histogram(metric: str) -> dict[str, int]:
        return duration(values.get(f"{metric}_count", 0), values.get(f"{metric}_sum", 0))

    def ended(*reasons: str) -> float:
        names = (f'llgtrt_request_success_total{{finished_reason="{reason}"}}' for reason in reasons)
        return sum(values.get(name, 0) for name in names)

    success = ended("stop", "length")
    prefill = histogram("llgtrt_request_prefill_time_seconds")
    decode = histogram("llgtrt_request_decode_time_seconds")
    nothing = duration(0, 0)
    return {
        "name": name,
        "version": VERSION,
        "last_inference": services.metrics.last_generation_ms,
        "inference_count": int(success),
        "execution_count": int(values.get("llgtrt_forward_passes_total", 0)),
        "inference_stats": {
            "success": duration(success, values.get("llgtrt_e2e_request_latency_seconds_sum", 0)),
            "fail": duration(ended("error", "abort"), 0),
            "queue": histogram("llgtrt_request_queue_time_seconds"),
            "compute_input": nothing,
            "compute_infer": {"count": prefill["count"], "ns": prefill["ns"] + decode["ns"]},
            "compute_output": nothing,
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [],
    }
