"""Bodies and results of a model: JSON, or msgpack where the content type is application/octet-stream."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from llgtrt.patient_json import parse_json

from .errors import InputParsingError

BINARY = "application/octet-stream"
_NO_MSGPACK = "This server does not read msgpack: pip install 'llgtrt[truss]'."


def is_binary(request: Request) -> bool:
    """Whether a request's body is msgpack, and so the answer."""
    media_type = request.headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == BINARY


def parse_body(body: bytes, binary: bool, kind: type[BaseModel] | None) -> Any:
    """The inputs of a model.

    Args:
        body: as it came.
        binary: it is msgpack.
        kind: the type that the model asks for.

    Raises:
        InputParsingError: it cannot be read, or is not of the type.
    """
    try:
        if binary:
            value = unpack(body)
            return value if kind is None else kind.model_validate(value)
        if kind is not None:
            return kind.model_validate_json(body)
    except ValidationError as error:
        raise InputParsingError(_explain(error)) from error
    try:
        return parse_json(body)
    except ValueError as error:
        raise InputParsingError(f"Invalid JSON payload: {error}") from error


def result_response(result: Any, binary: bool) -> Response:
    """The answer for what a model returned that is no answer yet.

    Raises:
        TypeError, ValueError: it cannot be written.
    """
    if binary:
        if isinstance(result, BaseModel):
            result = result.model_dump(mode="python")
        return Response(result if isinstance(result, bytes) else pack(result), media_type=BINARY)
    if isinstance(result, BaseModel):
        return Response(result.model_dump_json(), media_type="application/json")
    return Response(json.dumps(result, default=_plain), media_type="application/json")


def pack(value: Any) -> bytes:
    """A value as msgpack, with Truss's forms of dates, decimals, UUIDs and numpy's arrays."""
    import msgpack

    packed: bytes = msgpack.packb(value, default=_encode)
    return packed


def unpack(body: bytes) -> Any:
    """The value that msgpack holds.

    Raises:
        InputParsingError: it is not msgpack, or this installation cannot read it.
    """
    try:
        import msgpack
        import msgpack_numpy
    except ImportError as error:
        raise InputParsingError(_NO_MSGPACK) from error
    try:
        return msgpack.unpackb(body, object_hook=partial(_decode, chain=msgpack_numpy.decode))
    except Exception as error:
        # What the client packed decides what is raised: a date that is none, a decimal out of range.
        raise InputParsingError(f"Invalid msgpack payload: {error}") from error


def _explain(error: ValidationError) -> str:
    many = error.error_count() > 1
    lines = ["Input Parsing Errors:" if many else "Input Parsing Error:"]
    for one in error.errors(include_url=False, include_input=False, include_context=False):
        path = ""
        for part in one["loc"]:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
        lines.append(f"  `{path}`: {one['msg']}.")
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    """A number or an array of numpy for JSON. Nobody has one where numpy was not imported."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.generic):
            return value.item()
        if isinstance(value, numpy.ndarray):
            return value.tolist()
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _encode(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.isoformat()
        if text.endswith("+00:00"):
            text = text[: -len("+00:00")] + "Z"
        return {b"__dt_datetime_iso__": True, b"data": text}
    if isinstance(value, date):
        return {b"__dt_date_iso__": True, b"data": value.isoformat()}
    if isinstance(value, time):
        if value.utcoffset() is not None:
            raise ValueError("Cannot represent timezone-aware times.")
        return {b"__dt_time_iso__": True, b"data": value.isoformat()}
    if isinstance(value, timedelta):
        return {b"__dt_timedelta__": True, b"data": (value.days, value.seconds, value.microseconds)}
    if isinstance(value, Decimal):
        return {b"__decimal__": True, b"data": str(value)}
    if isinstance(value, uuid.UUID):
        return {b"__uuid__": True, b"data": str(value)}
    if "numpy" in sys.modules:
        import msgpack_numpy

        return msgpack_numpy.encode(value)
    return value


_FORMS: dict[bytes, Callable[[Any], Any]] = {
    b"__dt_datetime_iso__": lambda text: datetime.fromisoformat(text.replace("Z", "+00:00")),
    b"__dt_date_iso__": date.fromisoformat,
    b"__dt_time_iso__": time.fromisoformat,
    b"__dt_timedelta__": lambda parts: timedelta(days=parts[0], seconds=parts[1], microseconds=parts[2]),
    b"__decimal__": Decimal,
    b"__uuid__": uuid.UUID,
}


def _decode(members: dict[Any, Any], chain: Callable[[Any], Any]) -> Any:
    if b"data" in members:
        for mark, read in _FORMS.items():
            if mark in members:
                return read(members[b"data"])
    return chain(members)
