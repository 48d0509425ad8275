"""Both parsers of bodies read the same JSON; the patient one gives way to other threads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from llgtrt.serving.protocol import body_json
from llgtrt.serving.protocol.body_json import parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is read by the patient parser."""
    monkeypatch.setattr(body_json, "MAX_SEPARATORS", -1)


@settings(deadline=None)
@given(JSON)
def test_both_read_the_same(value: Any) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    assert body_json._PatientDecoder().decode(body.decode()) == from_json(body) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1,]",
        b"[NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b'["\\ud800"]',
        b'{"\\udfff": 1}',
        b'["\xff"]',
        b'["\n"]',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"[1] 2",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_both_refuse_the_same(patient: None, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(body, allow_inf_nan=False)
    with pytest.raises(ValueError, match=r"."):
        parse_json(body)


@pytest.mark.parametrize("value", ["1", "1.5", '"a"', "[]", "{}"])
def test_the_number_of_values_is_bounded(patient: None, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr(body_json, "MAX_VALUES", 100)
    few, many = (("[" + ",".join([value] * count) + "]").encode() for count in (20, 10_000))
    assert len(parse_json(few)) == 20
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json(many)


def test_a_body_of_many_values_is_read_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the fast parser was asked")

    monkeypatch.setattr(body_json, "from_json", fail)
    many = body_json.MAX_SEPARATORS + 2
    assert parse_json(b"[" + b"1," * (many - 1) + b"1]") == [1] * many
    with pytest.raises(AssertionError):
        parse_json(b"[1,2]")
