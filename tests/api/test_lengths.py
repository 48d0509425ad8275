"""How long answers may be (P28)."""

from __future__ import annotations

import re

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, error_of, ok
from support.sim import StartServer


def test_p28_default_lengths(http: httpx.Client) -> None:
    endless = {"ignore_eos": True}
    completion = ok(http.post(COMPLETIONS, json={"prompt": "Go", **endless}))
    assert completion["usage"]["completion_tokens"] == 16
    answer = ok(http.post(CHAT, json=chat(**endless)))
    assert answer["usage"]["total_tokens"] == 4096
    assert answer["choices"][0]["finish_reason"] == "length"


def test_p28_max_completion_tokens_wins(http: httpx.Client) -> None:
    for first, second in ((3, 9), (9, 3)):
        body = chat(ignore_eos=True, max_tokens=first, max_completion_tokens=second)
        assert ok(http.post(CHAT, json=body))["usage"]["completion_tokens"] == second


@pytest.mark.parametrize("stream", [False, True])
def test_p28_a_prompt_too_long(http: httpx.Client, stream: bool) -> None:
    for body in (chat("x" * 5000, stream=stream), chat(max_tokens=4096, stream=stream)):
        error = error_of(http.post(CHAT, json=body))
        assert error["code"] == "context_length_exceeded"
    error = error_of(http.post(COMPLETIONS, json={"prompt": [65] * 5000, "stream": stream}))
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_the_overlong_request_is_refused_in_openais_words(http: httpx.Client, stream: bool) -> None:
    error = error_of(http.post(CHAT, json=chat(max_tokens=4096, stream=stream)))
    assert re.match(
        r"This model's maximum context length is 4096 tokens\. However, you requested \d+ tokens "
        r"\(\d+ in the messages, 4096 in the completion\)\.",
        error["message"],
    ), error["message"]
    error = error_of(http.post(COMPLETIONS, json={"prompt": [65] * 5000, "stream": stream}))
    assert error["message"].startswith("This model's maximum context length is 4096 tokens. However, you")


def test_the_end_of_the_context_needs_no_room_for_the_default(http: httpx.Client) -> None:
    # 16 tokens are the default, but nobody asked for them.
    body = ok(http.post(COMPLETIONS, json={"prompt": [65] * 4090, "ignore_eos": True}))
    assert body["usage"]["total_tokens"] == 4096


def test_defaults_and_wishes_are_clamped_to_what_fits(start_server: StartServer) -> None:
    server = start_server(
        runtime={"max_seq_len": 200},
        server={"default_max_tokens": 1000, "max_tokens_beyond_context": "clamp"},
    )
    with httpx.Client(base_url=server.base_url) as client:
        for fields in ({}, {"max_tokens": 5000}, {"max_tokens": -1}, {"max_completion_tokens": 5000.0}):
            answer = ok(client.post(CHAT, json=chat(ignore_eos=True, **fields)))
            assert answer["usage"]["total_tokens"] == 200, fields
        assert error_of(client.post(CHAT, json=chat("x" * 300)))["code"] == "context_length_exceeded"
