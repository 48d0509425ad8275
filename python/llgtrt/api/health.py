"""Probes and metrics."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from llgtrt.api.delivery import DeliveryLimits, JsonGenerationResponse
from llgtrt.api.errors import HttpError
from llgtrt.api.metrics import CONTENT_TYPE
from llgtrt.api.responses import errors, json_object
from llgtrt.api.routing import new_router
from llgtrt.api.services import services_of
from llgtrt.engine import __version__
from llgtrt.serving import CompletionRequest

router = new_router("health")

PROBE = CompletionRequest(prompt="Hello", max_tokens=1, temperature=0.0)


@router.head("/v1/health/live", include_in_schema=False)
@router.get(
    "/v1/health/live",
    summary="Is the process alive",
    responses=json_object("It is."),
    response_model=None,
)
async def live(_request: Request) -> Response:
    """200 as long as the event loop turns, whatever the engine does."""
    return JSONResponse({"status": "live"})


@router.get(
    "/version",
    summary="The server's version",
    responses=json_object("An object with `version`."),
    response_model=None,
)
async def version(_request: Request) -> Response:
    """As vLLM has it."""
    return JSONResponse({"version": __version__})


@router.get("/ping", include_in_schema=False)
@router.head("/health", include_in_schema=False)
@router.get("/health", include_in_schema=False)
@router.head("/v1/health/ready", include_in_schema=False)
@router.get(
    "/v1/health/ready",
    summary="May requests be sent here",
    responses={**json_object("They may."), **errors(503)},
    response_model=None,
)
async def ready(request: Request) -> Response:
    """200 while requests are accepted; 503 while draining, and when the engine has stalled or failed.

    Of several models one that is ready is enough; the answer says how each is.
    """
    models = services_of(request).models
    check_ready(models.health())
    body: dict[str, Any] = {"status": "ready"}
    if models.several:
        body["models"] = {
            one.model.name: "ready" if one.health[0] == "ready" else _state(one.health) for one in models
        }
    return JSONResponse(body)


@router.get(
    "/v1/health/model",
    summary="Does the model generate",
    responses={**json_object("A text_completion of one token."), **errors(400, 404, 503, 504)},
    openapi_extra={
        "parameters": [{"name": "model", "in": "query", "required": False, "schema": {"type": "string"}}]
    },
    response_model=None,
)
async def model(request: Request) -> Response:
    """Generates one token; 200 with the completion when it came. `?model=` names one of several models."""
    services = services_of(request)
    name = request.query_params.get("model")
    one = services.models.find(name)
    probe = PROBE.model_copy(update={"model": name})
    generation = await one.completions.start(probe, probe=True)
    limits = DeliveryLimits(0, services.server.write_timeout_s, services.server.request_timeout_s)
    return JsonGenerationResponse(generation, limits, services.metrics)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "The metrics as text."}},
    response_model=None,
)
async def metrics(request: Request) -> Response:
    """Metrics of the models and of the HTTP side in Prometheus text format."""
    services = services_of(request)
    return Response(services.metrics.text(services.models), media_type=CONTENT_TYPE)


def check_ready(health: tuple[str, str]) -> None:
    """Nothing, if requests may be sent to what has this state and explanation.

    Raises:
        HttpError: 503.
    """
    state, _ = health
    if state != "ready":
        raise HttpError(503, _state(health), code=f"not_ready_{state}")


def _state(health: tuple[str, str]) -> str:
    state, explanation = health
    return f"{state}: {explanation}" if explanation else state
