"""The one place where an exception becomes an HTTP status and OpenAI's error object."""

from __future__ import annotations

import logging
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llgtrt.api.error_forms import error_form
from llgtrt.api.record import note
from llgtrt.engine import LlgtrtError
from llgtrt.serving import ModelNotFoundError, RequestError
from llgtrt.serving.errors import quote

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

RETRY_AFTER_S = {"overloaded": "1", "shutting_down": "5", "engine_failed": "5"}

DO_NOT_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat every 5xx by themselves unless told not to. What took too long once, or made the
model fail, would do so again."""


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
        if status == 500:
            headers = dict(DO_NOT_RETRY)
        message = error.message
        if error.kind == "grammar" and error.param:
            # Most clients show the message only.
            message = f"{error.param}: {message}"
        return status, error_object(message, type_, error.param, code), headers
    if isinstance(error, RequestTimeoutError):
        body = error_object("The request took too long.", SERVER_ERROR, None, "request_timeout")
        return 504, body, dict(DO_NOT_RETRY)
    if isinstance(error, MemoryError):
        body = error_object("The server is out of memory.", SERVER_ERROR, None, "out_of_memory")
        return 503, body, {"retry-after": RETRY_AFTER_S["overloaded"]}
    if isinstance(error, RequestValidationError):
        # Parameters in the path or the query: bodies are read by hand.
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"])
        return 400, error_object(f"{param}: {first['msg']}.", INVALID_REQUEST, param, None), {}
    if isinstance(error, HTTPException):
        message = str(error.detail)
        type_ = INVALID_REQUEST if error.status_code < 500 else SERVER_ERROR
        code = "not_found" if error.status_code == 404 else None
        return error.status_code, error_object(message, type_, None, code), dict(error.headers or {})
    logger.error("request failed", exc_info=error)
    return 500, error_object("Internal server error.", SERVER_ERROR, None, "internal_error"), {}


class ErrorResponse(Response):
    """An error object, whose code goes into the log. Its form is that of the protocol of the route."""

    def __init__(self, error: BaseException) -> None:
        status, self._object, headers = describe(error)
        self.error_code = self._object["error"]["code"] or self._object["error"]["type"]
        super().__init__(to_json(self._object), status, headers, "application/json")

    def for_route(self, scope: Scope) -> ErrorResponse:
        """The same error in the form of the route of a request."""
        self.body = to_json(error_form(scope).body(self._object))
        self.headers["content-length"] = str(len(self.body))
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        note(scope, error=self.error_code)
        self.for_route(scope)
        await super().__call__(scope, receive, send)


def error_response(error: BaseException) -> ErrorResponse:
    """The response for an exception."""
    return ErrorResponse(error)


async def handle_error(request: Request, error: Exception) -> Response:
    """The application's exception handler."""
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        path = quote(request.url.path)
        message = (
            f"There is no route {path}; the API is under /v1, such as /v1/chat/completions."
            if error.status_code == 404
            else f"The route {path} does not allow the method {quote(request.method, 20)}."
        )
        error = HTTPException(error.status_code, message, error.headers)
    return error_response(error)


def error_event(error: BaseException, scope: Scope) -> bytes:
    """Server-sent events for an error after the headers were sent, in the form of the request's route."""
    form = error_form(scope)
    return form.event(form.body(describe(error)[1]))
