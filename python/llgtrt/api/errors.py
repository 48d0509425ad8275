"""The one place where an exception becomes an HTTP status and OpenAI's error object."""

from __future__ import annotations

import logging

from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from llgtrt.api.error_forms import error_form
from llgtrt.api.record import note
from llgtrt.engine import LlgtrtError
from llgtrt.serving import ModelNotFoundError, NotFoundError, RequestError
from llgtrt.serving.errors import Failure, HookError, quote

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
    "logits_processor": (500, SERVER_ERROR, "logits_processor"),
    "forward_pass": (500, SERVER_ERROR, "forward_pass"),
    "engine_failed": (503, SERVER_ERROR, "engine_failed"),
}
"""HTTP status, error type and code of each kind of the core's errors. Those not listed are defects: 500."""

RETRY_AFTER_S = {"overloaded": "1", "shutting_down": "5", "engine_failed": "5"}

DO_NOT_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients repeat every 5xx by themselves unless told not to. What took too long once, or made the
model fail, would do so again."""


def describe(error: BaseException) -> tuple[Failure, dict[str, str]]:
    """What the client is told of an exception, and headers.

    What is not known here is a defect: its text goes to the log and not to the client.
    """
    if isinstance(error, ModelNotFoundError | NotFoundError):
        return Failure(404, error.message, INVALID_REQUEST, error.param, error.code), {}
    if isinstance(error, RequestError):
        return Failure(400, error.message, INVALID_REQUEST, error.param, error.code), {}
    if isinstance(error, HookError):
        type_ = INVALID_REQUEST if error.status < 500 else SERVER_ERROR
        return Failure(error.status, error.message, type_, None, error.code), dict(error.headers)
    if isinstance(error, HttpError):
        type_ = INVALID_REQUEST if error.status < 500 else SERVER_ERROR
        return (
            Failure(error.status, error.message, type_, error.param, error.code),
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
        return Failure(status, message, type_, error.param, code), headers
    if isinstance(error, RequestTimeoutError):
        failure = Failure(504, "The request took too long.", SERVER_ERROR, None, "request_timeout")
        return failure, dict(DO_NOT_RETRY)
    if isinstance(error, MemoryError):
        failure = Failure(503, "The server is out of memory.", SERVER_ERROR, None, "out_of_memory")
        return failure, {"retry-after": RETRY_AFTER_S["overloaded"]}
    if isinstance(error, RequestValidationError):
        # Parameters in the path or the query: bodies are read by hand.
        first = error.errors()[0]
        param = ".".join(str(part) for part in first["loc"])
        return Failure(400, f"{param}: {first['msg']}.", INVALID_REQUEST, param), {}
    if isinstance(error, HTTPException):
        message = str(error.detail)
        type_ = INVALID_REQUEST if error.status_code < 500 else SERVER_ERROR
        code = "not_found" if error.status_code == 404 else None
        return Failure(error.status_code, message, type_, None, code), dict(error.headers or {})
    logger.error("request failed", exc_info=error)
    return Failure(500, "Internal server error.", SERVER_ERROR, None, "internal_error"), {}


class ErrorResponse(Response):
    """An error object, whose code goes into the log. Its form is that of the API of the route."""

    def __init__(self, error: BaseException) -> None:
        self._failure, headers = describe(error)
        self.error_code = self._failure.code or self._failure.type
        super().__init__(to_json(self._failure.openai()), self._failure.status, headers, "application/json")

    def for_route(self, scope: Scope) -> ErrorResponse:
        """The same error in the form of the route of a request."""
        self.body = to_json(error_form(scope)(self._failure))
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


def error_event(failure: Failure) -> bytes:
    """A server-sent event for an error after the headers were sent, and the mark that nothing follows."""
    return b"data: " + to_json(failure.openai()) + b"\n\ndata: [DONE]\n\n"
