"""/tokenize and /detokenize: the forms, what an answer's prompt has of tokens, bounds."""

from __future__ import annotations

from typing import Any

import httpx
import jinja2
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
    back = ok(http.post("/detokenize", json={"tokens": answer["tokens"]}))
    assert back == {"prompt": text, "content": text}
    # llama.cpp's names and default.
    assert tokenize(http, content=text)["tokens"] == answer["tokens"]
    assert tokenize(http, content=text, add_special=True)["count"] == answer["count"] + 1
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


def test_a_request_is_rendered_to_the_tokens_of_its_prompt(http: httpx.Client) -> None:
    for fields in ({}, {"tools": [TOOL]}):
        asked = {**chat(), "messages": MESSAGES, "stream": True, "temperature": 0.5, **fields}
        rendered = ok(http.post(f"{CHAT}/render", json=asked))
        tokens = tokenize(http, messages=MESSAGES, **fields)["tokens"]
        assert rendered == {"model": "sim-model", "token_ids": tokens}
    prompts = ["Hello", "Grüße"]
    several: Any = ok(http.post(f"{COMPLETIONS}/render", json={"prompt": prompts, "max_tokens": 3}))
    assert [one["token_ids"] for one in several] == [
        tokenize(http, prompt=prompt)["tokens"] for prompt in prompts
    ]
    bare = {"prompt": "Hello", "add_special_tokens": False}
    without: Any = ok(http.post(f"{COMPLETIONS}/render", json=bare))
    assert without[0]["token_ids"] == list(b"Hello")
    as_tokens: Any = ok(http.post(f"{COMPLETIONS}/render", json={"prompt": [3, 1, 2]}))
    assert as_tokens == [{"model": "sim-model", "token_ids": [3, 1, 2]}]


def test_what_answers_with_a_list_is_documented_so(http: httpx.Client) -> None:
    paths = ok(http.get("/openapi.json"))["paths"]
    for path, kind in ((f"{CHAT}/render", "object"), (f"{COMPLETIONS}/render", "array")):
        content = paths[path]["post"]["responses"]["200"]["content"]
        assert content["application/json"]["schema"]["type"] == kind


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (f"{CHAT}/render", {**chat(), "messages": []}, "messages"),
        (f"{CHAT}/render", {**chat(), "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        (f"{COMPLETIONS}/render", {"prompt": "a", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        (f"{COMPLETIONS}/render", {"prompt": ["a", 3]}, "prompt[1]"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, "prompt"),
        ("/tokenize", {"prompt": "a", "content": "a"}, "prompt"),
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


def test_clients_that_make_prompts_themselves_are_told_how(http: httpx.Client) -> None:
    info = ok(http.get("/tokenizer_info", params={"model": "sim-model"}))
    assert info["model_max_length"] == ok(http.get("/v1/models"))["data"][0]["max_model_len"]
    for name in ("bos_token", "eos_token"):
        assert len(tokenize(http, prompt=info[name], add_special_tokens=False)["tokens"]) == 1
        assert info[name] in info["additional_special_tokens"]
    # The template is the one that answers are made with.
    prompt = ok(http.post(CHAT, json={**chat(), "max_tokens": 1, "return_expanded_prompt": True}))[
        "expanded_prompt"
    ]
    assert jinja2.Template(info["chat_template"]).render(**chat(), add_generation_prompt=True) == prompt
    assert error_of(http.get("/tokenizer_info", params={"model": "other"}), 404)["code"] == "model_not_found"


def test_another_model_is_not_found(http: httpx.Client) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert error_of(http.post(path, json={**body, "model": "other"}), 404)["code"] == "model_not_found"
