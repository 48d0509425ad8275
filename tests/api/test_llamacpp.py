"""llama.cpp's own routes: completion, infill, apply-template, props, counting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, error_of, ok
from support.server import ServerProcess
from support.tiny_llama import BOS, MIDDLE, PREFIX, SUFFIX, tokens_of, write_llama

PATH = "/completion"
ASKED: dict[str, Any] = {"prompt": "Once upon a time", "seed": 5, "n_predict": 12, "ignore_eos": True}
WHOLE = {
    "index",
    "content",
    "tokens",
    "id_slot",
    "stop",
    "model",
    "tokens_predicted",
    "tokens_evaluated",
    "generation_settings",
    "prompt",
    "has_new_line",
    "truncated",
    "stop_type",
    "stopping_word",
    "tokens_cached",
    "timings",
}


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [event for event in response.text.split("\n\n") if event and not event.startswith(":")]
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize("stream", [False, True])
def test_a_constrained_answer_has_its_receipt(http: httpx.Client, stream: bool) -> None:
    response = http.post(PATH, json={**ASKED, "json_schema": {"enum": ["ab", "cd"]}, "stream": stream})
    *pieces, end = events_of(response) if stream else [ok(response)]
    assert (end["constraint"]["kind"], end["constraint"]["complete"]) == ("json_schema", True)
    assert not any("constraint" in piece for piece in pieces)


def test_a_text(http: httpx.Client) -> None:
    body = ok(http.post(PATH, json={**ASKED, "return_tokens": True}))
    same = ok(http.post(COMPLETIONS, json={**ASKED, "return_token_ids": True}))
    assert set(body) == WHOLE
    assert body["content"] == same["choices"][0]["text"]
    assert body["tokens"] == same["choices"][0]["token_ids"]
    assert (body["stop"], body["stop_type"], body["truncated"]) == (True, "limit", False)
    assert body["tokens_predicted"] == body["timings"]["predicted_n"] == 12
    assert body["tokens_evaluated"] == same["usage"]["prompt_tokens"]
    assert body["timings"]["prompt_n"] == body["tokens_evaluated"] - body["tokens_cached"]
    assert body["prompt"] == ASKED["prompt"]
    assert body["generation_settings"]["n_predict"] == 12
    tokens = ok(http.post("/tokenize", json={"prompt": ASKED["prompt"]}))["tokens"]
    of_tokens = ok(http.post(PATH, json={**ASKED, "prompt": tokens}))
    assert of_tokens["content"] == body["content"]


def test_a_stream_says_the_same(http: httpx.Client) -> None:
    for fields in ({}, {"stop": ["e"]}, {"ignore_eos": False, "n_predict": -1}):
        asked = {**ASKED, **fields, "return_tokens": True}
        body = ok(http.post(PATH, json=asked))
        *pieces, last = events_of(http.post(PATH, json={**asked, "stream": True}))
        assert not any(piece["stop"] for piece in pieces)
        assert "".join(piece["content"] for piece in pieces) == body["content"]
        assert [token for piece in pieces for token in piece["tokens"]] == body["tokens"]
        assert set(last) == WHOLE
        assert last["content"] == ""
        for member in ("stop", "stop_type", "stopping_word", "tokens_predicted", "has_new_line"):
            assert last[member] == body[member]


def test_several_prompts(http: httpx.Client) -> None:
    tokens = ok(http.post("/tokenize", json={"content": "Hello", "add_special": True}))["tokens"]
    alone = ok(http.post(PATH, json={**ASKED, "prompt": "Hello"}))
    for prompts in (["Hello", "Bye"], [tokens, "Bye"], [tokens, tokens]):
        asked = {**ASKED, "prompt": prompts, "return_tokens": True}
        bodies: Any = ok(http.post(PATH, json=asked))
        assert [one["index"] for one in bodies] == [0, 1]
        assert bodies[0]["content"] == alone["content"]
        events = events_of(http.post(PATH, json={**asked, "stream": True}))
        for index, body in enumerate(bodies):
            own = [event for event in events if event["index"] == index]
            assert "".join(event["content"] for event in own) == body["content"]
            assert [event["stop"] for event in own].count(True) == 1
            assert own[-1]["stop"]
    assert ok(http.post(PATH, json={**ASKED, "prompt": ["Hello"]}))["prompt"] == "Hello"
    # One prompt of tokens and texts.
    parts = [tokens[0], "Hel", *tokens[4:5], "o"]
    assert ok(http.post(PATH, json={**ASKED, "prompt": parts}))["tokens_evaluated"] == len(tokens)


def test_why_it_ended(http: httpx.Client) -> None:
    word = ok(http.post(PATH, json={**ASKED, "n_predict": 400, "stop": ["e", "a"]}))
    assert word["stop_type"] == "word"
    assert word["stopping_word"] in ("e", "a")
    end = ok(http.post(PATH, json={"prompt": "Hi", "seed": 1, "grammar": 'root ::= "yes\\n"'}))
    assert (end["content"], end["stop_type"], end["has_new_line"]) == ("yes\n", "eos", True)


def test_a_schema_is_enforced(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    body = ok(http.post(PATH, json={"prompt": "Hi", "json_schema": schema}))
    assert isinstance(json.loads(body["content"])["n"], int)


def test_nothing_but_the_prompt(http: httpx.Client) -> None:
    """Editors have a prompt computed before they need it."""
    body = ok(http.post(PATH, json={**ASKED, "n_predict": 0}))
    assert (body["content"], body["tokens_predicted"]) == ("", 0)
    assert body["tokens_evaluated"] > 0


def test_only_some_members(http: httpx.Client) -> None:
    fields = ["content", "timings/predicted_n", "truncated", "no/such", "stop/no"]
    body = ok(http.post(PATH, json={**ASKED, "response_fields": fields}))
    assert body == {"content": body["content"], "timings/predicted_n": 12, "truncated": False}


@pytest.mark.parametrize("banned", [[[65, False]], {"65": -100}, [["65", -1000.0]]])
def test_biases_are_pairs(http: httpx.Client, banned: Any) -> None:
    only = {"prompt": "x", "n_predict": 40, "guided_regex": "[AB]{4}"}
    assert ok(http.post(PATH, json={**only, "logit_bias": banned}))["content"] == "BBBB"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [1, {}]}, "prompt[1]"),
        ({"prompt": ["a", 3.5]}, "prompt[1]"),
        ({"prompt": ["a", [None]]}, "prompt[1][0]"),
        ({"prompt": 3}, "prompt"),
        ({"n": 2}, "n"),
        ({"logit_bias": [["word", 1.0]]}, "logit_bias"),
        ({"logit_bias": [[1]]}, "logit_bias"),
        ({"n_predict": "x"}, "n_predict"),
        ({"mirostat": 2}, "mirostat"),
        ({"grammar": "root ::= nothing"}, "grammar"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_named(http: httpx.Client, fields: Any, param: str, stream: bool) -> None:
    error = error_of(http.post(PATH, json={**ASKED, **fields, "stream": stream}))
    assert error["param"] == param


def test_the_prompt_of_a_conversation(http: httpx.Client) -> None:
    asked = chat("Hi", max_tokens=1)
    answer = ok(http.post(CHAT, json={**asked, "return_expanded_prompt": True}))
    assert ok(http.post("/apply-template", json=asked)) == {"prompt": answer["expanded_prompt"]}
    count = ok(http.post("/v1/chat/completions/input_tokens", json=asked))
    assert count["input_tokens"] == answer["usage"]["prompt_tokens"]
    bad = {"messages": [{"role": "user", "content": 3}]}
    for path in ("/apply-template", "/v1/chat/completions/input_tokens"):
        assert error_of(http.post(path, json=bad))["param"] == "messages[0].content"


def test_what_clients_ask_of_a_server(http: httpx.Client) -> None:
    props = ok(http.get("/props"))
    assert props["chat_template"] == ok(http.get("/tokenizer_info"))["chat_template"]
    assert (
        props["default_generation_settings"]["n_ctx"]
        == ok(http.get("/v1/models"))["data"][0]["max_model_len"]
    )
    assert props["total_slots"] == 16
    assert error_of(http.get("/props", params={"model": "other"}), 404)["code"] == "model_not_found"


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with a model that can fill in."""
    folder = tmp_path_factory.mktemp("coder")
    config = folder / "one_thread.json5"
    config.write_text("{llamacpp: {threads: 1}}")
    with (
        ServerProcess("serve", str(write_llama(folder / "coder.gguf")), "-C", str(config)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        yield client


def test_what_stands_between_two_texts(coder: httpx.Client) -> None:
    asked = {"input_prefix": "def f(x):", "input_suffix": "\n", "temperature": 0, "n_predict": 8}
    # As an editor sends it: what is no matter of the answer is ignored.
    editor = {"samplers": ["top_k", "infill"], "cache_prompt": True, "t_max_predict_ms": 500, "n_indent": 4}
    for extra, snippet in (([], ""), ([{"filename": "a.py", "text": "x"}], "\n\n--- snippet ---\n\nx")):
        body = ok(coder.post("/infill", json={**asked, **editor, "prompt": " ret", "input_extra": extra}))
        filled = [
            BOS,
            *tokens_of(snippet),
            PREFIX,
            *tokens_of("def f(x):"),
            SUFFIX,
            *tokens_of("\n"),
            MIDDLE,
            *tokens_of(" ret"),
        ]
        same = ok(coder.post(COMPLETIONS, json={"prompt": filled, "max_tokens": 8, "temperature": 0}))
        assert body["tokens_evaluated"] == len(filled)
        assert body["content"] == same["choices"][0]["text"]


def test_a_model_that_cannot_fill_in_says_so(http: httpx.Client) -> None:
    error = error_of(http.post("/infill", json={"input_prefix": "a", "input_suffix": "b"}))
    assert "no tokens to fill in" in error["message"]
