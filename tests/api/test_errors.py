"""One form of errors, and what is no error (P6, P18, P24)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.api import CHAT, chat, error_of, ok, text_of


def test_p6_unknown_harmless_fields_are_ignored(http: httpx.Client) -> None:
    fields = {"verbosity": "low", "safety_identifier": "x", "service_tier": "auto", "priority": 1, "new": {}}
    assert text_of(ok(http.post(CHAT, json=chat(**fields)))) == text_of(ok(http.post(CHAT, json=chat())))


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "GET", 404),
        ("/v1", "GET", 404),
        ("/v1/chat/completions/", "POST", 404),
        ("/v1/models/no-such-model", "GET", 404),
        (CHAT, "GET", 405),
        (CHAT, "PUT", 405),
        ("/v1/models", "POST", 405),
        ("/metrics", "POST", 405),
    ],
)
def test_p18_errors_have_one_form(http: httpx.Client, path: str, method: str, status: int) -> None:
    response = http.request(method, path)
    error_of(response, status)
    assert response.headers["x-request-id"]


def test_p18_sizes_and_types(http: httpx.Client) -> None:
    error_of(http.post(CHAT, content=b" " * 1_000_001, headers={"content-type": "application/json"}), 413)

    def pieces() -> Any:
        for _ in range(20):
            yield b" " * 100_000

    error_of(http.post(CHAT, content=pieces(), headers={"content-type": "application/json"}), 413)
    error_of(http.post(CHAT, content=b"x", headers={"content-type": "text/csv"}), 415)
    error_of(http.post(CHAT, content=b"x", headers={"content-encoding": "gzip"}), 415)
    assert ok(http.post(CHAT, json=chat()))


def test_p18_an_unknown_model_is_404(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json=chat(model="gpt-99")), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    error_of(http.post(CHAT, json=chat(model="../../etc/passwd")), 404)
    body = chat()
    del body["model"]
    assert ok(http.post(CHAT, json=body))["model"] == "sim-model"


def test_p24_preflight(http: httpx.Client) -> None:
    headers = {"origin": "https://page.example", "access-control-request-method": "POST"}
    assert http.options(CHAT, headers=headers).status_code == 200


def test_a_mark_of_the_byte_order_is_no_error(http: httpx.Client) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(chat(max_tokens=2)).encode()
    ok(http.post(CHAT, content=body, headers={"content-type": "application/json"}))
