"""The one place where an exception becomes an HTTP status and OpenAI's error object."""

from __future__ import annotations

import logging
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from llgtrt.engine import LlgtrtError
from llgtrt.serving import ModelNotFoundError, RequestError

logger = logging.getLogger("llgtrt.api")

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
CONSTRAINT_ERROR = "constraint_error"


class HttpError(Exception):
    """A request that fails before it reaches a use case."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers


class RequestTimeoutError(Exception):
    """The request took longer than ``server.request_timeout_s``."""


_CORE_ERRORS: dict[str, tuple[int, str, str | None]] = {
    "invalid_request": (400, INVALID_REQUEST, None),
    "context_length": (400, INVALID_REQUEST, "context_length_exceeded"),
    "grammar": (400, INVALID_REQUEST, "invalid_grammar"),
    # Nobody is at fault, and clients must not repeat it by themselves, as they do with 5xx.
    "constraint": (422, CONSTRAINT_ERROR, "constraint_not_satisfied"),
    "overloaded": (503, SERVER_ERROR, "overloaded"),
    "shutting_down": (503, SERVER_ERROR, "shutting_down"),
    "not_finite": (500, SERVER_ERROR, "not_finite"),
    "engine_failed": (503, SERVER_ERROR, "engine_failed"),
}
"""HTTP status, error type and code of each kind of the core's errors. Those not listed are defects: 500."""

RETRY_AFTER_S = {"overloaded": "1", "shutting_down": "5"}

_HTTP_MESSAGES = {404: "There is no such route.", 405: "This route does not allow the method."}


def error_object(message: str, type_: str, param: str | None, code: str | None) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}


def describe(error: BaseException) -> tuple[int, dict[str, Any], dict[str, str]]:
    """HTTP status, body and headers for an exception.

    What is not known here is a defect: its text goes to the log and not to the client.
    """
    if isinstance(error, ModelNotFoundError):
        return 404, error_object(error.message, INVALID_REQUEST, error.param, error.code), {}
    if isinstance(error, RequestError):
        return 400, error_object(error.message, INVALID_REQUEST, error.param, error.code), {}
    if isinstance(error, HttpError):
        type_ = INVALID_REQUEST if error.status < 500 else SERVER_ERROR
        return (
            error.status,
            error_object(error.message, type_, error.param, error.code),
            dict(error.headers or {}),
        )
    if isinstance(error, LlgtrtError) and error.kind in _CORE_ERRORS:
        status, type_, code = _CORE_ERRORS[error.kind]
        retry_after = RETRY_AFTER_S.get(error.kind)
        headers = {"retry-after": retry_after} if retry_after else {}
        return status, error_object(error.message, type_, error.param, code), headers
    if isinstance(error, RequestTimeoutError):
        return 504, error_object("The request took too long.", SERVER_ERROR, None, "request_timeout"), {}
    if isinstance(error, HTTPException):
        message = _HTTP_MESSAGES.get(error.status_code, str(error.detail))
        type_ = INVALID_REQUEST if error.status_code < 500 else SERVER_ERROR
        code = "not_found" if error.status_code == 404 else None
        return error.status_code, error_object(message, type_, None, code), dict(error.headers or {})
    logger.error("request failed", exc_info=error)
    return 500, error_object("Internal server error.", SERVER_ERROR, None, "internal_error"), {}


def error_response(error: BaseException) -> Response:
    """The response for an exception."""
    status, body, headers = describe(error)
    return Response(to_json(body), status, headers, "application/json")


async def handle_error(_request: Request, error: Exception) -> Response:
    """The application's exception handler."""
    return error_response(error)


def error_event(error: BaseException) -> bytes:
    """A server-sent event for an error after the headers were sent."""
    return b"data: " + to_json(describe(error)[1]) + b"\n\n"
