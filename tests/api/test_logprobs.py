"""Log-probabilities (P27)."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, joined, ok, stream_chunks


@pytest.mark.parametrize(
    "fields", [{}, {"guided_regex": "[0-9]{9}"}, {"logit_bias": {"97": -100, "98": 100}}]
)
def test_p27_logprobs_are_valid_json(http: httpx.Client, fields: dict[str, Any]) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(name)

    body = chat(logprobs=True, top_logprobs=20, max_tokens=9, temperature=0.0, **fields)
    whole = json.loads(http.post(CHAT, json=body).text, parse_constant=no_constant)
    content = whole["choices"][0]["logprobs"]["content"]
    assert len(content) == whole["usage"]["completion_tokens"]
    for token in content:
        for one in (token, *token["top_logprobs"]):
            assert -9999.0 <= one["logprob"] <= 0.0
            assert math.isfinite(one["logprob"])
    chunks = stream_chunks(http, CHAT, body)
    pieces = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert [token for piece in pieces for token in piece["content"]] == content


def test_p27_logprobs_of_completions(http: httpx.Client) -> None:
    body = {"prompt": "Go", "logprobs": 3, "max_tokens": 5, "seed": 1}
    logprobs = ok(http.post(COMPLETIONS, json=body))["choices"][0]["logprobs"]
    assert set(logprobs) >= {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == len(logprobs["text_offset"]) == 5


def test_the_prompt_alone_can_be_scored(http: httpx.Client) -> None:
    body = {"prompt": "Go", "echo": True, "logprobs": 1, "max_tokens": 0}
    answer = ok(http.post(COMPLETIONS, json=body))
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Go", "length")
    assert choice["logprobs"]["tokens"][1:] == ["G", "o"]
    assert answer["usage"]["completion_tokens"] == 0
    assert joined(stream_chunks(http, COMPLETIONS, body)) == "Go"


def test_echo_with_logprobs_covers_the_prompt(http: httpx.Client) -> None:
    body = {"prompt": "Go", "echo": True, "logprobs": 1, "max_tokens": 3, "seed": 1}
    choice = ok(http.post(COMPLETIONS, json=body))["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith("Go")
    assert logprobs["tokens"][1:3] == ["G", "o"]
    # Nothing comes before the first token, so it has no probability.
    assert logprobs["token_logprobs"][0] is None
    assert len(logprobs["tokens"]) == 3 + 3
    assert "".join(logprobs["tokens"][1:]) == choice["text"]
    streamed = stream_chunks(http, COMPLETIONS, body)
    assert joined(streamed) == choice["text"]
    pieces = [one["logprobs"] for chunk in streamed for one in chunk["choices"]]
    assert [token for piece in pieces for token in piece["tokens"]] == logprobs["tokens"]


def test_twenty_log_probabilities(http: httpx.Client) -> None:
    body = {"prompt": "Once", "max_tokens": 2, "logprobs": 20, "seed": 1}
    (choice,) = ok(http.post(COMPLETIONS, json=body))["choices"]
    assert [len(one) >= 20 for one in choice["logprobs"]["top_logprobs"]] == [True, True]
