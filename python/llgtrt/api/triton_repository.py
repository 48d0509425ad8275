"""Triton's model repository: which models there are, and loading and unloading them while the server runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from llgtrt.api.auth import CLIENT, Client
from llgtrt.api.body import read_json_body
from llgtrt.api.errors import HttpError
from llgtrt.api.responses import OF_BODIES, errors
from llgtrt.api.routing import new_router
from llgtrt.api.services import KnownModel, ModelLoadError, ModelRepository, Services, services_of
from llgtrt.api.triton import MODEL
from llgtrt.patient_json import parse_json
from llgtrt.serving import ModelServices, RequestError
from llgtrt.serving.triton import VERSION

router = new_router("triton")

READY, UNAVAILABLE = "READY", "UNAVAILABLE"
IGNORED = frozenset({"unload_dependents"})
"""Parameters of Triton that ask for what is so anyway: no model here depends on another."""


@router.post(
    "/v2/repository/index",
    summary="List the models (Triton)",
    responses={200: {"description": "An array of models with their state."}, **OF_BODIES},
    response_model=None,
)
async def index(request: Request) -> Response:
    """The models and the adapters of those that are loaded; with `ready: true` only those that are ready."""
    services = services_of(request)
    given = await _object(request, services)
    only_ready = given.get("ready", False)
    if not isinstance(only_ready, bool):
        raise RequestError("ready must be true or false.", "ready")
    with _load_errors():
        known = [] if services.repository is None else await services.repository.index()
    listed = []
    for entry in known:
        one = services.models.get(entry.name)
        listed += [entry] if one is None else entries(one)
    if services.repository is None:
        listed = [entry for one in services.models for entry in entries(one)]
    return JSONResponse(
        [
            {"name": entry.name, "version": VERSION, "state": entry.state, "reason": entry.reason}
            for entry in listed
            if entry.state == READY or not only_ready
        ]
    )


@router.post(
    "/v2/repository/models/{name:path}/load",
    summary="Load a model (Triton)",
    openapi_extra={"parameters": [MODEL]},
    response_class=Response,
    responses={200: {"description": "It is loaded."}, **OF_BODIES, **errors(403, 404, 503)},
    response_model=None,
)
async def load(request: Request) -> Response:
    """Loads a model that the server knows, if there is memory for it, and answers when it is loaded."""
    repository = await _control(request)
    with _load_errors():
        await repository.load(request.path_params["name"])
    return Response()


@router.post(
    "/v2/repository/models/{name:path}/unload",
    summary="Unload a model (Triton)",
    openapi_extra={"parameters": [MODEL]},
    response_class=Response,
    responses={200: {"description": "It is unloaded."}, **OF_BODIES, **errors(403, 404)},
    response_model=None,
)
async def unload(request: Request) -> Response:
    """Lets the model's requests finish, unloads it, and answers when its memory is free."""
    repository = await _control(request)
    await repository.unload(request.path_params["name"])
    return Response()


def entries(one: ModelServices) -> list[KnownModel]:
    """A model that is loaded under each of its names, and its adapters."""
    state, explanation = one.health
    is_ready = state == "ready"
    shown = (READY, "") if is_ready else (UNAVAILABLE, explanation or state)
    return [KnownModel(entry["id"], *shown) for entry in one.model.objects()]


@contextlib.contextmanager
def _load_errors() -> Iterator[None]:
    try:
        yield
    except ModelLoadError as error:
        code = "out_of_memory" if error.no_memory else "model_load_failed"
        raise HttpError(503 if error.no_memory else 400, error.message, code=code) from error


async def _control(request: Request) -> ModelRepository:
    """The repository, for a request that may change what is loaded.

    Raises:
        HttpError: it may not.
        RequestError: the server has one model, or a parameter is not known.
    """
    services = services_of(request)
    given = await _object(request, services)
    if services.repository is None:
        raise RequestError(
            "This server has one model, which stays loaded; see `models` of the configuration."
        )
    if not services.server.keys:
        message = "Models are loaded and unloaded only where the server asks for an API key (server.api_key)."
        raise HttpError(403, message, code="no_api_key")
    client: Client = request.scope[CLIENT]
    if not client.manages_models:
        raise HttpError(403, "This API key may not load and unload models.", code="key_not_allowed")
    parameters = given.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError("parameters must be an object.", "parameters")
    for name in parameters:
        if name not in IGNORED:
            message = (
                f"parameters.{name[:80]}: what a model is loaded with is said by the configuration alone."
            )
            raise RequestError(message, "parameters")
    return services.repository


async def _object(request: Request, services: Services) -> dict[str, Any]:
    """The body, which may be empty."""
    server = services.server
    body = await read_json_body(
        request, most_bytes=server.max_body_bytes, timeout_s=server.header_timeout_s, any_type=True
    )
    if not body.strip():
        return {}
    try:
        given = parse_json(body)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(given, dict):
        raise RequestError("The body must be an object.")
    return given
