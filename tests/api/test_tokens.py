"""/tokenize and /detokenize: the forms, what an answer's prompt has of tokens, bounds."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, error_of, ok

MESSAGES = [{"role": "user", "content": "Grüße, 世界! 👋"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def tokenize(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = ok(http.post("/tokenize", json=fields))
    assert set(answer) == {"count", "max_model_len", "tokens", "token_strs"}
    assert answer["count"] == len(answer["tokens"])
    return answer


@pytest.mark.parametrize("text", ["Hello", "Grüße, 世界! 👋", "a\nb  c", ""])
def test_there_and_back(http: httpx.Client, text: str) -> None:
    answer = tokenize(http, model="sim-model", prompt=text, add_special_tokens=False)
    assert answer["token_strs"] is None
    assert ok(http.post("/detokenize", json={"tokens": answer["tokens"]})) == {"prompt": text}
    with_texts = tokenize(http, prompt=text, add_special_tokens=False, return_token_strs=True)
    assert with_texts["tokens"] == answer["tokens"]
    assert len(with_texts["token_strs"]) == answer["count"]
    assert ok(http.get("/v1/models"))["data"][0]["max_model_len"] == answer["max_model_len"]


def test_what_an_answer_counts(http: httpx.Client) -> None:
    usage = ok(http.post(COMPLETIONS, json={"prompt": "Hello", "max_tokens": 1}))["usage"]
    assert tokenize(http, prompt="Hello")["count"] == usage["prompt_tokens"]
    for fields in ({}, {"tools": [TOOL]}):
        asked = {**chat(), "messages": MESSAGES, "max_tokens": 1, "at_limit": "cut", **fields}
        usage = ok(http.post(CHAT, json=asked))["usage"]
        assert tokenize(http, messages=MESSAGES, **fields)["count"] == usage["prompt_tokens"]
    whole = tokenize(http, messages=MESSAGES)["count"]
    assert tokenize(http, messages=MESSAGES, add_generation_prompt=False)["count"] < whole


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a" * 70_000}, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * 70_000}]}, "messages"),
        ("/tokenize", {"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {"tokens": [2**31]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1] * 9000}, "tokens"),
    ],
)
def test_what_is_refused_is_named(http: httpx.Client, path: str, body: Any, param: str) -> None:
    error = error_of(http.post(path, json=body))
    assert error["param"] == param
    assert len(error["message"]) < 500


def test_another_model_is_not_found(http: httpx.Client) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert error_of(http.post(path, json={**body, "model": "other"}), 404)["code"] == "model_not_found"
