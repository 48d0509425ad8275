"""Streams: their chunks, and that they say what whole answers do (P17, P19, P23)."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from support.api import (
    CHAT,
    COMPLETIONS,
    PERSON,
    chat,
    chunks_of,
    error_of,
    finish_reasons,
    joined,
    json_schema_format,
    ok,
    stream_chunks,
)
from support.server import ServerProcess


def test_p17_usage_comes_only_when_asked_for(http: httpx.Client) -> None:
    for path, body in ((CHAT, chat(n=2)), (COMPLETIONS, {"prompt": "Go", "seed": 1})):
        for chunk in stream_chunks(http, path, body):
            assert "usage" not in chunk or chunk["usage"] is None
            assert chunk["choices"]
        chunks = stream_chunks(http, path, {**body, "stream_options": {"include_usage": True}})
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] > 0
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        whole = ok(http.post(path, json=body))
        assert chunks[-1]["usage"] == whole["usage"]


def test_p17_the_role_comes_once(http: httpx.Client) -> None:
    chunks = stream_chunks(http, CHAT, chat(n=2))
    roles = [choice for chunk in chunks for choice in chunk["choices"] if "role" in choice["delta"]]
    assert sorted(choice["index"] for choice in roles) == [0, 1]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


def test_p19_errors_before_the_first_token_are_a_status(http: httpx.Client) -> None:
    for fields in ({"guided_regex": "((("}, {"max_tokens": 100_000}):
        response = http.post(CHAT, json=chat(stream=True, **fields))
        error_of(response)
        assert response.headers["content-type"] == "application/json"


def test_p23_idle_streams_are_pinged(slow_server: ServerProcess) -> None:
    # The prefill of this prompt takes about a second, the ping interval is 0.1 s.
    response = httpx.post(
        slow_server.base_url + CHAT, json=chat("word " * 160, max_tokens=1, stream=True), timeout=60
    )
    assert response.text.startswith(": ping\n\n")
    assert len(chunks_of(response.text)) == 1


FORMS: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"stop": ["a", "xyz"]},
    {"max_tokens": 7},
    {"response_format": json_schema_format(PERSON)},
    {"guided_regex": "([ab]c){2,9}", "n": 2},
    {"logit_bias": {"101": -100}, "frequency_penalty": 1.5, "repetition_penalty": 1.2},
    {"temperature": 0.0},
    {"top_k": 3, "min_p": 0.1, "top_p": 0.9},
    {"min_tokens": 40, "max_tokens": 60},
    {"stop_token_ids": [32]},
    {"top_p": 0, "top_k": -1},
]


@pytest.mark.parametrize("fields", FORMS)
def test_stream_equals_non_stream(http: httpx.Client, fields: dict[str, Any]) -> None:
    whole = ok(http.post(CHAT, json=chat(**fields)))
    chunks = stream_chunks(http, CHAT, chat(**fields))
    reasons = finish_reasons(chunks)
    for choice in whole["choices"]:
        assert joined(chunks, choice["index"]) == choice["message"]["content"]
        assert reasons[choice["index"]] == choice["finish_reason"]
    body = {"prompt": ["Go", "Stop"], "seed": 3, "max_tokens": 60, **fields}
    whole = ok(http.post(COMPLETIONS, json=body))
    chunks = stream_chunks(http, COMPLETIONS, body)
    assert len(whole["choices"]) == 2 * fields.get("n", 1)
    for choice in whole["choices"]:
        assert joined(chunks, choice["index"]) == choice["text"]


def test_stream_options_say_nothing_without_a_stream(http: httpx.Client) -> None:
    body = ok(http.post(CHAT, json=chat(max_tokens=2, stream_options={"include_usage": True})))
    assert body["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [True, False])
def test_http_1_0_knows_no_chunks(server: ServerProcess, stream: bool) -> None:
    body = json.dumps(chat(max_tokens=4, stream=stream)).encode()
    head = f"POST {CHAT} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode() + body)
        # The server closes: that is the end of the body.
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    fields, _, text = answer.partition(b"\r\n\r\n")
    assert fields.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in fields.lower()
    if stream:
        assert joined(chunks_of(text.decode()))
    else:
        assert json.loads(text)["choices"]
