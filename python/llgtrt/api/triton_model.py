"""Triton's routes about the server and its models: health, metadata, configuration, statistics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from llgtrt.api.health import check_ready
from llgtrt.api.metrics import samples
from llgtrt.api.responses import errors, json_object
from llgtrt.api.routing import new_router
from llgtrt.api.services import services_of
from llgtrt.api.triton import MODEL, PATH, VERSION_PATH
from llgtrt.engine import __version__
from llgtrt.serving import ModelServices
from llgtrt.serving.protocol.triton import INPUTS, OUTPUTS
from llgtrt.serving.triton import VERSION

router = new_router("triton")

EXTENSIONS = [
    "binary_tensor_data",
    "generate",
    "model_configuration",
    "model_repository",
    "parameters",
    "statistics",
]
NS = 1_000_000_000


@router.head("/v2/health/live", include_in_schema=False)
@router.get(
    "/v2/health/live",
    summary="Is the process alive (Triton)",
    response_class=Response,
    responses={200: {"description": "It is."}},
    response_model=None,
)
async def live(_request: Request) -> Response:
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
    check_ready(services_of(request).models.health())
    return Response()


@router.get(
    "/v2", summary="Describe the server (Triton)", responses=json_object("Its name."), response_model=None
)
async def server_metadata(_request: Request) -> Response:
    """Name, version and extensions of the server."""
    return JSONResponse({"name": "llgtrt", "version": __version__, "extensions": EXTENSIONS})


@router.get("/v2/models/stats", include_in_schema=False)
async def all_stats(request: Request) -> Response:
    """The statistics of all models."""
    return JSONResponse({"model_stats": [_stats(one, one.model.name) for one in services_of(request).models]})


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
    one, _ = _find(request)
    check_ready(one.health)
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
    one, name = _find(request)
    info = one.engine.model_info
    parameters = {
        "backend": info.backend,
        "max_sequence_tokens": info.max_sequence_tokens,
        "max_sequences_at_once": info.max_batch_size,
        "vocabulary_size": info.vocab_size,
    }
    body = {
        "name": name,
        "platform": "",
        "backend": "llgtrt",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": one.triton.most_sequences,
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
    """Counts and durations of all requests of the model, whichever route they came by."""
    return JSONResponse({"model_stats": [_stats(*_find(request))]})


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
    _, name = _find(request)
    body = {
        "name": name,
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


def _find(request: Request) -> tuple[ModelServices, str]:
    """The model in the path, and the name to answer with."""
    name = request.path_params["name"]
    one = services_of(request).models.find(name)
    return one, one.triton.find(name, request.path_params.get("version"))


def _config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def _stats(one: ModelServices, name: str) -> dict[str, Any]:
    """Triton's statistics, from the core's metrics. The core does not time requests that fail."""
    values = samples(one.engine.metrics())

    def duration(count: float, seconds: float) -> dict[str, int]:
        return {"count": int(count), "ns": int(seconds * NS)}

    def histogram(metric: str) -> dict[str, int]:
        return duration(values.get(f"{metric}_count", 0), values.get(f"{metric}_sum", 0))

    def ended(*reasons: str) -> float:
        names = (f'llgtrt_request_success_total{{finished_reason="{reason}"}}' for reason in reasons)
        return sum(values.get(name, 0) for name in names)

    success = ended("stop", "length", "handed_over")
    prefill = histogram("llgtrt_request_prefill_time_seconds")
    decode = histogram("llgtrt_request_decode_time_seconds")
    nothing = duration(0, 0)
    return {
        "name": name,
        "version": VERSION,
        "last_inference": one.engine.last_submit_ms,
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
