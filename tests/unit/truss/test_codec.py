"""Bodies and results as JSON and msgpack."""

from __future__ import annotations

import json
import uuid
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgpack
import msgpack_numpy
import numpy
import pytest
from pydantic import BaseModel

from llgtrt.truss.codec import pack, parse_body, result_response, unpack
from llgtrt.truss.errors import InputParsingError


class Order(BaseModel):
    count: int
    at: list[date] = []


def test_json_bodies() -> None:
    assert parse_body(b'{"a": [1]}', False, None) == {"a": [1]}
    assert parse_body(b'"text"', False, None) == "text"
    for bad in (b"", b"{", b"NaN", b"\xff"):
        with pytest.raises(InputParsingError, match="Invalid JSON payload"):
            parse_body(bad, False, None)


@pytest.mark.parametrize("binary", [False, True])
def test_a_pydantic_model_checks_the_body(binary: bool) -> None:
    def body(value: Any) -> bytes:
        packed: bytes = msgpack.packb(value) if binary else json.dumps(value).encode()
        return packed

    assert parse_body(body({"count": 3}), binary, Order) == Order(count=3)
    with pytest.raises(InputParsingError) as one:
        parse_body(body({"count": "x"}), binary, Order)
    assert "Input Parsing Error:\n  `count`: " in str(one.value)
    with pytest.raises(InputParsingError) as several:
        parse_body(body({"at": ["2020-01-01", "x"]}), binary, Order)
    assert "Input Parsing Errors:" in str(several.value)
    assert "`at[1]`" in str(several.value)


VALUES: list[Any] = [
    {"a": [1, 2.5, None, True, "é"], "b": b"\x00\xff"},
    datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=timezone.utc),
    datetime(2024, 5, 6, 7, 8, 9),
    date(2024, 5, 6),
    time(7, 8, 9),
    timedelta(days=-3, seconds=5, microseconds=7),
    Decimal("1.10"),
    uuid.UUID(int=5),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_msgpack_gives_back_what_it_was_given(value: Any) -> None:
    assert unpack(pack(value)) == value
    assert unpack(pack({"inside": [value]})) == {"inside": [value]}


def test_arrays_are_as_truss_s_clients_write_them() -> None:
    array = numpy.arange(6, dtype="float32").reshape(2, 3)
    from_client = msgpack.packb({"x": array}, default=msgpack_numpy.encode)
    assert (unpack(from_client)["x"] == array).all()
    assert pack({"x": array}) == from_client
    assert json.loads(bytes(result_response({"x": array, "y": numpy.int64(3)}, False).body)) == {
        "x": array.tolist(),
        "y": 3,
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81\xa1a",
        msgpack.packb({b"__decimal__": True, b"data": "x"}),
        msgpack.packb({b"__dt_timedelta__": True, b"data": [10**12, 0, 0]}),
        msgpack.packb({b"__uuid__": True, b"data": 5}),
        msgpack.packb({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [9], b"data": b"1"}),
    ],
)
def test_what_is_no_msgpack_is_the_client_s_fault(body: bytes) -> None:
    with pytest.raises(InputParsingError, match="Invalid msgpack payload"):
        unpack(body)


def test_results() -> None:
    response = result_response({"a": 1}, False)
    assert (bytes(response.body), response.media_type) == (b'{"a": 1}', "application/json")
    assert bytes(result_response(Order(count=1), False).body) == b'{"count":1,"at":[]}'
    binary = result_response(Order(count=1, at=[date(2024, 1, 2)]), True)
    assert binary.media_type == "application/octet-stream"
    assert unpack(bytes(binary.body)) == {"count": 1, "at": [date(2024, 1, 2)]}
    assert bytes(result_response(b"as it is", True).body) == b"as it is"
    with pytest.raises(TypeError, match="not JSON serializable"):
        result_response(object(), False)
