"""What the routes answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorDetails(BaseModel):
    """What is wrong."""

    message: str = Field(description="For people; names the field where there is one.")
    type: str = Field(description="invalid_request_error, server_error or constraint_error.")
    param: str | None = Field(description="Dotted path of the field that is wrong.")
    code: str | None = Field(description="Stable name of the error, for programs.")


class ErrorBody(BaseModel):
    """The body of every response that is not a success."""

    error: ErrorDetails


_MEANINGS = {
    400: "A field is wrong, the context is too short, or a grammar cannot be used.",
    401: "The key is missing or wrong.",
    403: "The host, or the web page that asks, is not allowed.",
    404: "There is no such route or model.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON in UTF-8.",
    500: "A defect of the server, or the model gave no number.",
    503: "Overloaded, shutting down, or the engine failed; Retry-After says when to try again.",
    504: "The request took too long.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for its ``responses``."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in statuses}


OF_EVERY_ROUTE = errors(401, 403, 500)
OF_BODIES = errors(400, 404, 408, 413, 415, 503, 504)

_OBJECT = {"schema": {"type": "object"}}


def json_object(description: str, *, is_list: bool = False) -> dict[int | str, dict[str, Any]]:
    """A success with a JSON object, or with a list of them."""
    schema = {"schema": {"type": "array", "items": {"type": "object"}}} if is_list else _OBJECT
    return {200: {"description": description, "content": {"application/json": schema}}}


def generation(description: str) -> dict[int | str, dict[str, Any]]:
    """A success with one object, or with a stream of them."""
    # OpenAPI 3.1 has no words for the events of a stream: a type here would be taken for that of each event.
    stream = {"schema": {"description": "Server-sent events."}}
    content = {"application/json": _OBJECT, "text/event-stream": stream}
    return {200: {"description": description, "content": content}, **OF_BODIES}
