"""The web application: routes, middlewares and error handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from llgtrt.api import grammar, health, openai, triton, triton_model, triton_repository
from llgtrt.api.apis import request_models, router_of
from llgtrt.api.auth import ApiKeyMiddleware
from llgtrt.api.browser import BrowserMiddleware
from llgtrt.api.context import RequestContextMiddleware, UnhandledErrorMiddleware
from llgtrt.api.docs_page import Documentation
from llgtrt.api.error_forms import ERROR_FORMS, ErrorForm, error_schema, form_of_path
from llgtrt.api.errors import HttpError, handle_error
from llgtrt.api.services import Services
from llgtrt.api.triton_tensors import InferRequest
from llgtrt.engine import LlgtrtError, __version__
from llgtrt.serving import (
    ChatRequest,
    CompletionRequest,
    Failure,
    RequestError,
    TritonRequest,
    ValidateRequest,
)
from llgtrt.serving.caller import IGNORED_TOOLS

BODIES: tuple[type[BaseModel], ...] = (
    ChatRequest,
    CompletionRequest,
    InferRequest,
    TritonRequest,
    ValidateRequest,
)
"""What the bodies of requests hold."""


def create_app(services: Services, routers: Sequence[APIRouter] = ()) -> FastAPI:
    """The application for a loaded engine.

    Args:
        services: the use cases.
        routers: further routes, which win over the server's own.
    """
    application = FastAPI(
        title="llgtrt",
        version=__version__,
        summary="LLM inference whose constrained answers are always valid",
        middleware=_middleware(services),
        redirect_slashes=False,
        # FastAPI's own pages load scripts from elsewhere, and its document is made on the event loop.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Traces and metrics are our own (telemetry.py, metrics.py).
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    application.state.services = services
    forms = {path: api.error for api in services.apis for path in api.error_paths}
    setattr(application.state, ERROR_FORMS, forms)
    for router in (
        *routers,
        openai.router,
        *map(router_of, services.apis),
        grammar.router,
        health.router,
        triton.router,
        triton_model.router,
        triton_repository.router,
    ):
        # Not included: then FastAPI works out for each request what the routes are there.
        application.router.routes += router.routes
    for error_type in (RequestError, LlgtrtError, HttpError, HTTPException, RequestValidationError):
        application.add_exception_handler(error_type, handle_error)

    def openapi() -> dict[str, Any]:
        return _openapi(application, services, routers)

    application.openapi = openapi  # type: ignore[method-assign]
    documentation = Documentation(openapi)
    for path, answer in (("/openapi.json", documentation.document), ("/docs", documentation.page)):
        application.add_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False)
    return application


def _middleware(services: Services) -> list[Middleware]:
    """From the outside in. CORS is outside the key check: a browser's preflight carries no key."""
    server = services.server
    keys = server.keys
    layers = [
        Middleware(
            RequestContextMiddleware,
            metrics=services.metrics,
            log_requests=server.log_requests,
            telemetry=services.telemetry,
        )
    ]
    if server.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=server.cors_origins,
                allow_methods=["GET", "HEAD", "POST", "DELETE", "OPTIONS"],
                allow_headers=["*"],
                expose_headers=["X-Request-Id", "Retry-After", IGNORED_TOOLS],
            )
        )
    layers.append(Middleware(UnhandledErrorMiddleware))
    layers.append(
        Middleware(
            BrowserMiddleware,
            allowed_hosts=server.allowed_hosts,
            origins=server.cors_origins,
            has_key=bool(keys),
        )
    )
    if keys:
        layers.append(
            Middleware(ApiKeyMiddleware, keys=keys, metrics=services.metrics, root_path=server.root_path)
        )
    return layers


def _describe_errors(document: dict[str, Any], forms: dict[str, ErrorForm]) -> None:
    """Gives the errors of each route the form of its API, where that is not OpenAI's."""
    for path, operations in document["paths"].items():
        form = form_of_path(path, forms)
        if form is Failure.openai:
            continue
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    response["content"] = {"application/json": {"schema": error_schema(form)}}


def _openapi(application: FastAPI, services: Services, routers: Sequence[APIRouter]) -> dict[str, Any]:
    document = get_openapi(
        title=application.title,
        version=application.version,
        summary=application.summary,
        routes=application.routes,
    )
    # Of two routes of one path the first answers, but the last would be described.
    for router in routers:
        own = get_openapi(title=application.title, version=application.version, routes=router.routes)
        for path, operations in own["paths"].items():
            document["paths"].setdefault(path, {}).update(operations)
    _, schemas = models_json_schema(
        [(model, "validation") for model in (*BODIES, *request_models(services.apis))],
        ref_template="#/components/schemas/{model}",
    )
    _describe_errors(document, getattr(application.state, ERROR_FORMS))
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(schemas["$defs"])
    if services.server.keys:
        components["securitySchemes"] = {
            "apiKey": {"type": "http", "scheme": "bearer"},
            "apiKeyHeader": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        document["security"] = [{"apiKey": []}, {"apiKeyHeader": []}]
    return document
