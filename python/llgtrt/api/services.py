"""What the routes work with; built once by the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from llgtrt.api.context import RequestTelemetry
from llgtrt.api.metrics import HttpMetrics
from llgtrt.config import ServerConfig
from llgtrt.serving import Models
from llgtrt.serving.apis import Api


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be loaded.

    Attributes:
        name: its first name.
        state: ``READY``, ``UNAVAILABLE``, ``LOADING`` or ``UNLOADING``, as Triton calls them.
        reason: why it is not ready; empty for one that nobody has loaded.
    """

    name: str
    state: str
    reason: str = ""


class ModelRepository(Protocol):
    """Models that are loaded and unloaded while the server runs."""

    async def index(self) -> list[KnownModel]:
        """Every model that can be loaded or is."""

    async def load(self, name: str) -> None:
        """Loads a model; one that has failed is loaded anew, and one that works stays as it is.

        Raises:
            NotFoundError: no such model is known.
            ModelLoadError: it cannot be loaded.
        """

    async def unload(self, name: str) -> None:
        """Lets a model's requests finish and unloads it.

        Raises:
            NotFoundError: no such model is loaded.
        """


class ModelLoadError(Exception):
    """A model cannot be loaded.

    Attributes:
        message: why.
        no_memory: there is not enough memory for it now.
    """

    def __init__(self, message: str, no_memory: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.no_memory = no_memory


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases of the models and what they share.

    Attributes:
        repository: ``None`` for a server of one model, which stays loaded.
    """

    models: Models
    server: ServerConfig
    metrics: HttpMetrics
    apis: tuple[Api, ...] = ()
    telemetry: RequestTelemetry | None = None
    repository: ModelRepository | None = None


def services_of(request: Request) -> Services:
    """The services of the application that a request came to."""
    services: Services = request.app.state.services
    return services
