"""Bodies are read as pydantic reads JSON, up to a number of values; other threads run meanwhile."""

from __future__ import annotations

import json
import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from llgtrt import patient_json
from llgtrt.patient_json import Written, json_of, long_json, parse_json, pieces_of, read_own, text_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


LONG = ["a", "\u00e9", "\u6f22", "\U0001f600", "\n", 'x"\\', "a\u6f22"]
"""What long texts are made of: characters of one to four bytes, and escapes."""


@settings(deadline=None)
@given(JSON)
def test_values_are_read_as_pydantic_reads_them(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    # Large texts are parsed elsewhere.
    for read in (text, text + " " * 5000):
        assert parse_json(read) == parse_json(read.encode()) == from_json(read) == value
        assert parse_json(bytearray(b"\xef\xbb\xbf" + read.encode())) == value


@pytest.mark.parametrize("letters", LONG)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_long_texts_are_whole(letters: str, ascii_only: bool) -> None:
    text = "." + letters * 70_000
    body = json.dumps({text[:66_000]: [text, text[1:]]}, ensure_ascii=ascii_only)
    assert parse_json(body) == parse_json(body.encode()) == {text[:66_000]: [text, text[1:]]}


@pytest.mark.parametrize(
    "text", ["1" * 4000, "-" + "9" * 30, "1e400", "-0", "-0.0", "1E-400", '{"a":1,"a":2}']
)
def test_numbers_and_members_are_those_of_pydantic(text: str) -> None:
    assert repr(parse_json(text)) == repr(from_json(text))


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
def test_what_pydantic_refuses_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(body, allow_inf_nan=False)
    for read in (body, body + b" " * 5000):
        with pytest.raises(ValueError, match=r"."):
            parse_json(read)


def test_half_of_a_pair_is_no_text() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        parse_json('["\ud800"]')


@pytest.mark.parametrize("value", ["1", "1.5", '"a"', "[]", "{}"])
def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
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


@pytest.mark.parametrize(
    "body",
    [b"[" + b"1," * 400_000 + b"1]", json.dumps("\u6f22\n" * 1_000_000, ensure_ascii=False).encode()],
)
def test_other_threads_run_while_a_large_body_is_read(body: bytes) -> None:
    read = threading.Event()
    turns = 0

    def count() -> None:
        nonlocal turns
        while not read.is_set():
            turns += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        with ThreadPoolExecutor(1) as threads:
            counting = threads.submit(count)
            parse_json(body)
            before = turns
            read.set()
            counting.result()
    finally:
        sys.setswitchinterval(interval)
    assert before > 0


def test_commas_and_brackets_of_texts_are_not_counted() -> None:
    texts = ['[{,\\"' * 200_000, "\\"]
    assert parse_json(json.dumps(texts)) == texts


@pytest.mark.parametrize("letters", ["", *LONG])
def test_long_texts_are_written_in_pieces(letters: str) -> None:
    text = letters * 70_000
    assert text_json(text) == json.dumps(text, ensure_ascii=False).encode()
    assert "".join(pieces_of(text)) == text


NESTED = {"a": [{"b": [[{"c": [1.5, "é", None, {}, []] * 40}] * 50] * 40}] * 3, "d": {}, "e": "é" * 70_000}


@settings(deadline=None)
@given(JSON)
def test_what_may_be_long_is_written_as_ever(value: Any) -> None:
    assert long_json(value) == to_json(value)
    assert read_own(to_json(value).decode()) == value


def test_long_values_are_written_and_read_whole() -> None:
    text = long_json(NESTED)
    assert text == to_json(NESTED)
    assert read_own(text.decode()) == NESTED
    # Far more than a client may send.
    assert read_own("[" + "[]," * 40_000 + "1]")[-1] == 1


def test_what_is_written_goes_in_as_it_is() -> None:
    assert (
        long_json({"a": [{"b": Written('{"c" : "é"}')}, Written("1")]})
        == '{"a":[{"b":{"c" : "é"}},1]}'.encode()
    )


@pytest.mark.parametrize("options", [{}, {"ensure_ascii": True}, {"indent": 2}, {"sort_keys": True}])
def test_on_another_thread_long_texts_are_written_as_ever(options: dict[str, Any]) -> None:
    value = {"b": ['é漢😀"\\\n\x07' * 40_000, 1.5, -0.0, 1e300, None], "a": {"c": "x" * 200_000}}
    with ThreadPoolExecutor(1) as threads:
        text = threads.submit(json_of, value, **options).result()
    assert text == json.dumps(value, **{"ensure_ascii": False, **options})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_on_another_thread_numbers_that_are_not_finite_are_as_ever(number: float) -> None:
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(json_of, [number]).result() == json.dumps([number])
        with pytest.raises(ValueError, match="not JSON compliant"):
            threads.submit(json_of, [number], allow_nan=False).result()
