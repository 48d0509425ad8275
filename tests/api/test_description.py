"""Every answer, stream event and error has the form that OpenAI's description of its API gives it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat
from support.openapi import validate, validate_answer
from support.sim import NAN_PROMPT

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
USAGE = {"stream_options": {"include_usage": True}}

CHATS: list[dict[str, Any]] = [
    {},
    {"n": 3, "max_tokens": 4},
    {"logprobs": True, "top_logprobs": 3},
    {"stop": ["a", "e"]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}, "logprobs": True},
    {"tools": [TOOL], "tool_choice": "auto", "response_format": {"type": "json_object"}},
    {"functions": [TOOL["function"]], "function_call": {"name": "f"}},
    {"thinking": {"type": "enabled", "budget_tokens": 8}, "guided_choice": ["yes", "no"]},
]
TEXTS: list[dict[str, Any]] = [
    {},
    {"prompt": ["a", "b"], "n": 2},
    {"echo": True, "logprobs": 2},
    {"echo": True, "max_tokens": 0, "logprobs": 1},
    {"prompt": [1, 2, 3], "stop": "a"},
    {"guided_regex": "[0-9]{3}"},
]


def post(http: httpx.Client, path: str, body: dict[str, Any], status: int = 200) -> int:
    response = http.post(path, json=body)
    assert response.status_code == status, response.text
    return validate_answer(path, status, response.headers["content-type"], response.content)


@pytest.mark.parametrize("stream", [{}, {"stream": True}, {"stream": True, **USAGE}], ids=["", "s", "u"])
@pytest.mark.parametrize("fields", CHATS, ids=lambda fields: "-".join(fields))
def test_chat(http: httpx.Client, fields: dict[str, Any], stream: dict[str, Any]) -> None:
    # How many events a stream has depends on how fast its reader is.
    assert post(http, CHAT, chat(**{"max_tokens": 100, **fields, **stream})) >= 1


@pytest.mark.parametrize("stream", [{}, {"stream": True}, {"stream": True, **USAGE}], ids=["", "s", "u"])
@pytest.mark.parametrize("fields", TEXTS, ids=lambda fields: "-".join(fields))
def test_completions(http: httpx.Client, fields: dict[str, Any], stream: dict[str, Any]) -> None:
    body = {"model": "sim-model", "prompt": "Once", "seed": 1, "max_tokens": 8, **fields, **stream}
    assert post(http, COMPLETIONS, body) >= 1


def test_models(http: httpx.Client) -> None:
    for path in ("/v1/models", "/v1/models/sim-model"):
        response = http.get(path)
        assert validate_answer(path, 200, response.headers["content-type"], response.content) == 1


def test_errors(http: httpx.Client) -> None:
    assert post(http, CHAT, chat(max_tokens="x"), 400) == 1
    assert post(http, CHAT, {**chat(), "model": "other"}, 404) == 1
    assert post(http, CHAT, chat(NAN_PROMPT), 500) == 1
    # The status was sent: the error is an event.
    assert post(http, CHAT, chat(NAN_PROMPT, stream=True)) >= 1


def test_the_judge_sees_what_is_wrong() -> None:
    choice = {"index": 0, "logprobs": None, "finish_reason": "end", "text": ""}
    answer = {"id": "", "object": "text_completion", "created": 0, "model": "", "choices": [choice]}
    with pytest.raises(AssertionError, match=r"\$\.choices\[0\]\.finish_reason"):
        validate("CreateCompletionResponse", answer)
