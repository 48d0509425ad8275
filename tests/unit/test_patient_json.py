"""Both parsers of bodies read the same JSON; the patient one gives way to other threads."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from llgtrt import patient_json
from llgtrt.patient_json import json_of, parse_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is read by the patient parser."""
    monkeypatch.setattr(patient_json, "MAX_MARKS", -1)


@settings(deadline=None)
@given(JSON)
def test_both_read_the_same(value: Any) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()
    assert patient_json._PatientDecoder().decode(body.decode()) == from_json(body) == value


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
    monkeypatch.setattr(patient_json, "MAX_VALUES", 100)
    few, many = (("[" + ",".join([value] * count) + "]").encode() for count in (20, 10_000))
    assert len(parse_json(few)) == 20
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json(many)


@pytest.mark.parametrize("value", ["[]", "{}", '{"a": 1}', "[[1]]"])
def test_the_number_of_containers_is_bounded(value: str) -> None:
    few, many = (("[" + ",".join([value] * count) + "]").encode() for count in (16_000, 33_000))
    assert len(parse_json(few)) == 16_000
    with pytest.raises(ValueError, match="more than 32768 objects and arrays"):
        parse_json(many)


@pytest.mark.parametrize("value", [[1, {"a": "é"}], {"a": [None, True, 1.5]}, "\u2028"])
def test_large_values_are_written_as_small_ones_are(value: Any) -> None:
    with ThreadPoolExecutor(1) as threads:
        patient = threads.submit(json_of, value, sort_keys=True).result()
    assert patient == json_of(value, sort_keys=True) == json.dumps(value, ensure_ascii=False, sort_keys=True)


def test_a_body_of_many_values_is_read_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the fast parser was asked")

    monkeypatch.setattr(patient_json, "from_json", fail)
    many = patient_json.MAX_MARKS + 2
    assert parse_json(b"[" + b"1," * (many - 1) + b"1]") == [1] * many
    # Hardly a comma, and as many values.
    nested = b"[" * 100 + b"]" * 100
    assert len(parse_json(b"[" + (nested + b",") * 200 + b"1]")) == 201
    with pytest.raises(AssertionError):
        parse_json(b"[1,2]")
