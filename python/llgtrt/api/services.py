"""What the routes work with; built once by the composition root."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from llgtrt.api.context import RequestTelemetry
from llgtrt.api.metrics import HttpMetrics
from llgtrt.config import ServerConfig
from llgtrt.engine import AsyncEngine
from llgtrt.serving import ChatService, CompletionService, ServedModel, TritonService, ValidateService
from llgtrt.serving.apis import Api


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases and what they share."""

    engine: AsyncEngine
    model: ServedModel
    chat: ChatService
    completions: CompletionService
    triton: TritonService
    validate: ValidateService
    server: ServerConfig
    metrics: HttpMetrics
    apis: tuple[Api, ...] = ()
    telemetry: RequestTelemetry | None = None


def services_of(request: Request) -> Services:
    """The services of the application that a request came to."""
    services: Services = request.app.state.services
    return services
