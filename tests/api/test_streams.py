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
from support.sim import StartServer
from support.wait import wait_until


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


def test_a_late_reader_misses_nothing(start_server: StartServer) -> None:
    """The connection takes a part of a chunk, and no more for as long as nobody reads."""
    tokens = 4000
    server = start_server(runtime={"max_seq_len": 10_000}, sim={"step_us": 50})
    body = chat(max_tokens=tokens, ignore_eos=True, logprobs=True, top_logprobs=20)
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        whole = ok(http.post(CHAT, json=body))["choices"][0]
        content = json.dumps({**body, "stream": True}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        with socket.socket() as late:
            late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            late.connect(("127.0.0.1", server.port))
            late.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            # A second request on the connection comes behind all of the first answer.
            late.sendall(f"{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
            wait_until(
                lambda: server.metric("llgtrt_generation_tokens_total") >= 2 * tokens, "all is there", 60
            )
            answer = b"".join(iter(lambda: late.recv(4096), b""))
    first, second = answer.split(b"\r\n0\r\n\r\n", 1)
    assert second.startswith(b"HTTP/1.1 4")
    chunked = first.partition(b"\r\n\r\n")[2]
    text = b""
    while chunked:
        size, _, chunked = chunked.partition(b"\r\n")
        count = int(size, 16)
        text, chunked = text + chunked[:count], chunked[count:].removeprefix(b"\r\n")
    chunks = chunks_of(text.decode())
    assert joined(chunks) == whole["message"]["content"]
    streamed = [
        entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {}).get("content", ())
    ]
    assert streamed == whole["logprobs"]["content"]
