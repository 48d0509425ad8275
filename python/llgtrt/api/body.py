"""Reads a request's body within limits of size and time.

Bodies are parsed by hand: FastAPI's own parsing answers 422, accepts NaN, and fails on a lone surrogate.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from llgtrt.api.errors import HttpError
from llgtrt.config import ServerConfig
from llgtrt.serving import in_proportion, parse_request

Model = TypeVar("Model", bound=BaseModel)

LEAST_BYTES_PER_S = 16 * 1024
"""A client slower than this, after ``header_timeout_s``, is dropped: it would hold a connection for long."""


def request_body(model: str) -> dict[str, Any]:
    """The request body for the OpenAPI document, which cannot see it in the function's signature."""
    reference = {"$ref": f"#/components/schemas/{model}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": reference}}}}


async def read_request(request: Request, server: ServerConfig, model: type[Model]) -> Model:
    """The request that a body holds.

    Raises:
        HttpError, ClientDisconnect: as :func:`read_json_body`.
        RequestError: it is not JSON, not an object, or a field is wrong.
    """
    body = await read_json_body(request, most_bytes=server.max_body_bytes, timeout_s=server.header_timeout_s)
    return await in_proportion(len(body), parse_request, model, body)


async def read_json_body(
    request: Request, *, most_bytes: int, timeout_s: float, any_type: bool = False
) -> bytes:
    """The body of a JSON request.

    Args:
        request: the request.
        most_bytes: a larger body is refused.
        timeout_s: how long it may take to begin; see ``LEAST_BYTES_PER_S``.
        any_type: take it whatever type a program says it has, as Triton does.

    Raises:
        HttpError: 415 for another content type; and as :func:`read_body`.
        ClientDisconnect: the client left.
    """
    _check_content_type(request, any_type)
    return await read_body(request, most_bytes=most_bytes, timeout_s=timeout_s)


async def read_body(request: Request, *, most_bytes: int, timeout_s: float) -> bytes:
    """The body of a request, whatever it holds.

    Raises:
        HttpError: 415 for an encoding, 413 if it is too large, 408 if it is too slow.
        ClientDisconnect: the client left.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise HttpError(415, "Encoded request bodies are not accepted.", param="content-encoding")
    _check_content_length(request, most_bytes)
    loop = asyncio.get_running_loop()
    start = loop.time()
    chunks: list[bytes] = []
    size = 0
    while True:
        deadline = start + timeout_s + size / LEAST_BYTES_PER_S
        try:
            message = await asyncio.wait_for(request.receive(), max(deadline - loop.time(), 0.0))
        except asyncio.TimeoutError:
            raise HttpError(
                408,
                "The request body did not arrive in time.",
                code="request_timeout",
                headers={"connection": "close"},
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        if chunk:
            size += len(chunk)
            if size > most_bytes:
                raise _too_large(most_bytes)
            chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _check_content_type(request: Request, any_type: bool) -> None:
    content_type = request.headers.get("content-type")
    if content_type is None:
        # A page can send a body without a type to any server, without asking it first.
        if "origin" in request.headers:
            raise HttpError(415, "The content type must be application/json.", param="content-type")
        return
    if any_type and "origin" not in request.headers:
        return
    media_type, _, parameters = content_type.partition(";")
    media_type = media_type.strip().lower()
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        raise HttpError(415, "The content type must be application/json.", param="content-type")
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in ("utf-8", "utf8", "us-ascii"):
            raise HttpError(415, "The character set must be UTF-8.", param="content-type")


def _check_content_length(request: Request, most_bytes: int) -> None:
    length = request.headers.get("content-length")
    if length is not None and length.isascii() and length.isdigit() and int(length[:20]) > most_bytes:
        raise _too_large(most_bytes)


def _too_large(most_bytes: int) -> HttpError:
    return HttpError(413, f"The request body is larger than {most_bytes} bytes.", code="request_too_large")
