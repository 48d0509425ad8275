"""``truncate_prompt_tokens``: only a part of a prompt or of a text is used."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, chat, error_of, ok

EMBEDDINGS = "/v1/embeddings"
RERANK = "/v1/rerank"


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    tokens: list[int] = ok(http.post("/tokenize", json={"prompt": text, "add_special_tokens": False}))[
        "tokens"
    ]
    return tokens


@pytest.mark.parametrize("as_tokens", [False, True])
def test_a_completion_goes_on_behind_the_end_of_its_prompt(http: httpx.Client, as_tokens: bool) -> None:
    text = "Once upon a time there was a house."
    prompt: Any = tokens_of(http, text) if as_tokens else text
    fields = {"max_tokens": 4, "seed": 3, "echo": True, "return_token_ids": True}
    cut = ok(http.post(COMPLETIONS, json={"prompt": prompt, "truncate_prompt_tokens": 6, **fields}))
    end = tokens_of(http, text)[-6:]
    whole = ok(http.post(COMPLETIONS, json={"prompt": end, **fields}))
    assert cut["choices"] == whole["choices"]
    assert cut["choices"][0]["prompt_token_ids"] == end
    assert cut["usage"]["prompt_tokens"] == 6


def test_a_conversation_that_is_too_long_can_be_cut(http: httpx.Client) -> None:
    long = "x" * 100_000
    error = error_of(http.post(CHAT, json=chat(long, max_tokens=10)))
    assert error["code"] == "context_length_exceeded"
    [limit] = [one["max_model_len"] for one in ok(http.get("/v1/models"))["data"]]
    for max_tokens, room in ((10, 10), (None, 1)):
        body = ok(http.post(CHAT, json=chat(long, max_tokens=max_tokens, truncate_prompt_tokens=-1)))
        assert body["usage"]["prompt_tokens"] == limit - room
        assert body["usage"]["completion_tokens"] <= room
    body = ok(http.post(CHAT, json=chat(long, max_tokens=3, truncate_prompt_tokens=50)))
    assert body["usage"]["prompt_tokens"] == 50
    # The end is what is left: the header of the answer.
    short = ok(
        http.post(CHAT, json=chat("hi", max_tokens=3, truncate_prompt_tokens=5, return_token_ids=True))
    )
    plain = ok(http.post(CHAT, json=chat("hi", max_tokens=3, return_token_ids=True)))
    assert short["prompt_token_ids"] == plain["prompt_token_ids"][-5:]


def test_a_stream_is_cut_as_well(openai: OpenAI) -> None:
    stream = openai.completions.create(
        model="sim-model",
        prompt="x" * 50_000,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"truncate_prompt_tokens": 7},
    )
    usage = [chunk.usage for chunk in stream][-1]
    assert usage is not None
    assert usage.prompt_tokens == 7


def test_an_embedding_is_of_the_beginning(http: httpx.Client) -> None:
    text = "the red tree and the blue tree"
    tokens = tokens_of(http, text)
    inputs: list[Any] = [[text, "a"], [tokens, tokens[:1]]]
    for value in inputs:
        body = ok(http.post(EMBEDDINGS, json={"input": value, "truncate_prompt_tokens": 5}))
        first = ok(http.post(EMBEDDINGS, json={"input": [tokens[:5]]}))
        assert body["data"][0]["embedding"] == first["data"][0]["embedding"]
        assert body["usage"]["prompt_tokens"] == 6
    long = "x" * 100_000
    assert error_of(http.post(EMBEDDINGS, json={"input": long}))["code"] == "context_length_exceeded"
    body = ok(http.post(EMBEDDINGS, json={"input": long, "truncate_prompt_tokens": -1}))
    assert body["usage"]["prompt_tokens"] > 100


def test_a_document_is_cut_and_not_the_query(http: httpx.Client) -> None:
    body = {"query": "cats", "documents": ["dog" + "x" * 100_000, "cats"], "return_documents": False}
    assert error_of(http.post(RERANK, json=body))["code"] == "context_length_exceeded"
    whole = ok(http.post(RERANK, json={**body, "documents": ["dog", "cats"]}))
    cut = ok(http.post(RERANK, json={**body, "truncate_prompt_tokens": len("cats") + 1 + 3}))
    assert [one["index"] for one in cut["results"]] == [1, 0]
    assert cut["results"][1] == whole["results"][1]
    error = error_of(http.post(RERANK, json={**body, "truncate_prompt_tokens": 3}))
    assert error["param"] == "documents[0]"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, EMBEDDINGS, RERANK])
@pytest.mark.parametrize("value", [0, -2, 2**31, 1.5, "3", True])
def test_what_is_no_length_is_refused(http: httpx.Client, path: str, value: Any) -> None:
    body = {
        **chat(),
        "prompt": "x",
        "input": "x",
        "query": "x",
        "documents": ["x"],
        "truncate_prompt_tokens": value,
    }
    assert error_of(http.post(path, json=body))["param"] == "truncate_prompt_tokens"
