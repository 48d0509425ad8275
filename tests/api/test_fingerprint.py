"""``system_fingerprint``: in every object of an answer, whoever writes it, as the stock client reads it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from openai import OpenAI

from support.api import chat
from support.sim import StartServer

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
RUNNING = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
PROMPT: dict[str, Any] = {"model": "sim-model", "prompt": "Hello", "seed": 3, "max_tokens": 5}


def fingerprint_of(openai: OpenAI) -> str:
    fingerprint = openai.completions.create(**PROMPT).system_fingerprint
    return str(fingerprint)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream_options": {"include_usage": True}},
        # These are not written by the core.
        {"tools": TOOLS, "tool_choice": "required"},
        {"extra_body": {"return_token_ids": True}},
        RUNNING,
    ],
    ids=["plain", "usage", "tools", "token ids", "running usage"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_every_object_of_an_answer_has_it(openai: OpenAI, fields: dict[str, Any], stream: bool) -> None:
    expected = fingerprint_of(openai)
    assert re.fullmatch("fp_[0-9a-f]{10}", expected)
    if not stream:
        fields = {name: value for name, value in fields.items() if name != "stream_options"}
    answers: list[Any] = [openai.chat.completions.create(**chat(max_tokens=200), **fields, stream=stream)]
    if "tools" not in fields:
        answers.append(openai.completions.create(**PROMPT, **fields, stream=stream))
    for answer in answers:
        chunks = list(answer) if stream else [answer]
        assert chunks
        assert {chunk.system_fingerprint for chunk in chunks} == {expected}


def test_it_is_that_of_the_options(start_server: StartServer) -> None:
    def seen(**config: Any) -> str:
        server = start_server(**config)
        with OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0) as client:
            return fingerprint_of(client)

    assert seen() == seen() != seen(runtime={"seed": 5})
