"""What can go wrong around the code of a Truss, and how it is answered.

Every answer is ``{"error": text}`` with a status. What a model raises as ``fastapi.HTTPException`` passes
through; everything else that it raises is told to the log only.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from types import TracebackType

from fastapi import HTTPException as FastApiHttpException
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from llgtrt.api.errors import describe

logger = logging.getLogger("llgtrt.truss")

MODEL_ERROR = "Internal Server Error (in model/chainlet)."
"""What a client learns of an exception of the model: Truss's own words."""

CLIENT_CLOSED = 499


class ModelDefinitionError(TypeError):
    """A model's class does not have the form that it should have. The message names the method."""


class UserCodeError(Exception):
    """The model raised something. The cause has the details."""


class InputParsingError(ValueError):
    """The body is not what the model takes: status 400."""


class MethodNotImplementedError(Exception):
    """The model has no such method: status 404."""


class ModelNotReadyError(Exception):
    """The server does not take requests, or the model says that it is not healthy: status 503."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Model with name {name} is not ready.")


class TooManyRequestsError(Exception):
    """More requests than ``py.model_max_requests``: status 503."""


def client_left(step: str) -> HTTPException:
    """What a step becomes for which nobody waits any more."""
    # FastAPI's own class: models may catch it.
    return FastApiHttpException(CLIENT_CLOSED, f"Client disconnected, skipping `{step}`.")


def json_error(status: int, message: object, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that is an error. ``message``: a text, or the JSON of an ``HTTPException``'s ``detail``."""
    return Response(
        json.dumps({"error": message}, default=str), status, headers, media_type="application/json"
    )


def error_response(error: BaseException) -> Response:
    """The answer for an exception. What is not known here is a defect, whose text goes to the log only."""
    if isinstance(error, HTTPException):
        return json_error(error.status_code, error.detail, error.headers)
    if isinstance(error, UserCodeError):
        return json_error(500, MODEL_ERROR)
    if isinstance(error, InputParsingError):
        return json_error(400, str(error))
    if isinstance(error, MethodNotImplementedError):
        return json_error(404, str(error))
    if isinstance(error, ModelNotReadyError):
        return json_error(503, str(error), {"retry-after": "5"})
    if isinstance(error, TooManyRequestsError):
        return json_error(503, str(error), {"retry-after": "1"})
    told, headers = describe(error)
    return json_error(told.status, told.message, headers)


class contained:  # noqa: N801 (a context manager, used like a function)
    """What code of the model raises becomes one of the exceptions above; the log has the traceback.

    Args:
        name: the method.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        """Begins."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Raises what it becomes."""
        if error is None or isinstance(error, _PASS_THROUGH):
            return
        if isinstance(error, ClientDisconnect):
            raise client_left(self._name) from error
        # Also SystemExit: it may not reach an event loop.
        logger.error("model.py: %s failed", self._name, exc_info=error)
        raise UserCodeError from error


_PASS_THROUGH = (HTTPException, UserCodeError, asyncio.CancelledError, GeneratorExit)
