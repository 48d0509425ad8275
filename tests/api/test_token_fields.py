"""Fields about tokens: ids, log-probabilities of the prompt, running counts, the best of several."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, chunks_of, error_of, joined, ok

ANSWER: dict[str, Any] = {"prompt": "Hello there", "seed": 3, "max_tokens": 9, "ignore_eos": True}
STREAM: dict[str, Any] = {"stream": True}
RUNNING = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


def tokens_of(http: httpx.Client, text: str) -> list[int]:
    tokens: list[int] = ok(http.post("/tokenize", json={"prompt": text}))["tokens"]
    return tokens


def text_of(http: httpx.Client, tokens: list[int]) -> str:
    text: str = ok(http.post("/detokenize", json={"tokens": tokens}))["prompt"]
    return text


def test_the_ids_are_those_of_the_texts(http: httpx.Client) -> None:
    plain = ok(http.post(COMPLETIONS, json=ANSWER))
    body = ok(http.post(COMPLETIONS, json={**ANSWER, "return_token_ids": True}))
    choice = body["choices"][0]
    assert choice["text"] == plain["choices"][0]["text"]
    assert choice["prompt_token_ids"] == tokens_of(http, ANSWER["prompt"])
    assert len(choice["token_ids"]) == body["usage"]["completion_tokens"] == 9
    assert text_of(http, choice["token_ids"]) == choice["text"]
    assert "token_ids" not in plain["choices"][0]


def test_the_ids_of_a_stream_are_those_of_the_whole(http: httpx.Client) -> None:
    asked = {**ANSWER, "n": 2, "return_token_ids": True}
    whole = ok(http.post(COMPLETIONS, json=asked))["choices"]
    chunks = chunks_of(http.post(COMPLETIONS, json={**asked, **STREAM}).text)
    for index, choice in enumerate(whole):
        parts = [one for chunk in chunks for one in chunk["choices"] if one["index"] == index]
        assert [token for part in parts for token in part.get("token_ids", ())] == choice["token_ids"]
        assert [part["prompt_token_ids"] for part in parts if "prompt_token_ids" in part] == [
            choice["prompt_token_ids"]
        ]
        assert joined(chunks, index) == choice["text"]


def test_the_ids_of_a_chat(http: httpx.Client) -> None:
    asked = chat(max_tokens=9, return_token_ids=True)
    body = ok(http.post(CHAT, json=asked))
    choice = body["choices"][0]
    rendered = ok(http.post("/tokenize", json={"messages": asked["messages"]}))["tokens"]
    assert body["prompt_token_ids"] == rendered
    assert len(choice["token_ids"]) == body["usage"]["completion_tokens"]
    chunks = chunks_of(http.post(CHAT, json={**asked, **STREAM}).text)
    ids = [token for chunk in chunks for one in chunk["choices"] for token in one.get("token_ids", ())]
    assert ids == choice["token_ids"]
    assert [chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk] == [rendered]
    assert joined(chunks) == choice["message"]["content"]


def test_tokens_that_are_held_back_come_once(http: httpx.Client) -> None:
    """A stop string holds text back, a schema forces tokens: neither changes whose tokens they are."""
    for fields in (
        {"stop": ["zzzz", "e"]},
        {"guided_json": {"type": "object", "properties": {"a": {"const": "always"}}, "required": ["a"]}},
    ):
        asked = {**ANSWER, "ignore_eos": False, "max_tokens": 200, "return_token_ids": True, **fields}
        body = ok(http.post(COMPLETIONS, json=asked))
        ids = body["choices"][0]["token_ids"]
        assert len(ids) == body["usage"]["completion_tokens"]
        chunks = chunks_of(http.post(COMPLETIONS, json={**asked, **STREAM}).text)
        assert ids == [t for chunk in chunks for one in chunk["choices"] for t in one.get("token_ids", ())]
        assert text_of(http, ids).startswith(body["choices"][0]["text"])


def test_log_probabilities_of_the_prompt(http: httpx.Client) -> None:
    asked = {**ANSWER, "max_tokens": 1, "prompt_logprobs": 2}
    choice = ok(http.post(COMPLETIONS, json=asked))["choices"][0]
    entries = choice["prompt_logprobs"]
    tokens = tokens_of(http, ANSWER["prompt"])
    assert len(entries) == len(tokens)
    assert entries[0] is None
    for token, entry in zip(tokens[1:], entries[1:], strict=True):
        assert 2 <= len(entry) <= 3
        own = entry[str(token)]
        assert own["decoded_token"] == text_of(http, [token])
        ranks = [one["rank"] for one in entry.values() if one["rank"] is not None]
        assert ranks[:2] == [1, 2]
    # The same numbers as echo has.
    echoed = ok(http.post(COMPLETIONS, json={**ANSWER, "max_tokens": 0, "echo": True, "logprobs": 2}))
    logprobs = echoed["choices"][0]["logprobs"]["token_logprobs"]
    ours = [
        None,
        *(entry[str(token)]["logprob"] for token, entry in zip(tokens[1:], entries[1:], strict=True)),
    ]
    assert ours == logprobs
    body = ok(http.post(CHAT, json=chat(max_tokens=1, prompt_logprobs=0)))
    assert body["prompt_logprobs"][0] is None
    assert all(len(entry) == 1 for entry in body["prompt_logprobs"][1:])


def test_both_kinds_of_log_probabilities_at_once(http: httpx.Client) -> None:
    """The engine counts alternatives once: each kind has as many as were asked for it."""
    for of_prompt, of_answer in ((4, 1), (1, 4)):
        asked = {**ANSWER, "prompt_logprobs": of_prompt, "logprobs": of_answer}
        choice = ok(http.post(COMPLETIONS, json=asked))["choices"][0]
        assert {len(entry) for entry in choice["prompt_logprobs"][1:]} <= {of_prompt, of_prompt + 1}
        assert len(choice["logprobs"]["tokens"]) == 9
        # Fewer where several tokens have the same text: parts of characters.
        most = max(len(top) for top in choice["logprobs"]["top_logprobs"])
        assert most in (of_answer, of_answer + 1)


@pytest.mark.parametrize(
    ("path", "body"), [(COMPLETIONS, ANSWER), (CHAT, chat(max_tokens=9))], ids=["completions", "chat"]
)
def test_every_chunk_has_the_counts_so_far(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    chunks = chunks_of(http.post(path, json={**body, **RUNNING}).text)
    counts = [chunk["usage"] for chunk in chunks]
    assert all(count["prompt_tokens"] == counts[0]["prompt_tokens"] > 0 for count in counts)
    completion = [count["completion_tokens"] for count in counts]
    assert completion == sorted(completion)
    assert all(
        count["total_tokens"] == count["prompt_tokens"] + count["completion_tokens"] for count in counts
    )
    plain = chunks_of(
        http.post(path, json={**body, "stream": True, "stream_options": {"include_usage": True}}).text
    )
    assert plain[-1]["usage"] == counts[-1] == counts[-2]
    assert all(chunk["usage"] is None for chunk in plain[:-1])
    assert joined(chunks) == joined(plain)


def test_the_best_are_the_likeliest(http: httpx.Client) -> None:
    every = ok(http.post(COMPLETIONS, json={**ANSWER, "prompt": ["a", "b"], "n": 5, "logprobs": 0}))[
        "choices"
    ]

    def likelihood(choice: dict[str, Any]) -> float:
        values: list[float] = choice["logprobs"]["token_logprobs"]
        return sum(values) / len(values)

    asked = {**ANSWER, "prompt": ["a", "b"], "n": 2, "best_of": 5}
    body = ok(http.post(COMPLETIONS, json=asked))
    expected = [
        choice["text"]
        for group in (every[:5], every[5:])
        for choice in sorted(group, key=likelihood, reverse=True)[:2]
    ]
    assert len({round(likelihood(choice), 6) for choice in every}) > 2, "the test tells nothing"
    assert [choice["text"] for choice in body["choices"]] == expected
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["logprobs"] for choice in body["choices"]] == [None] * 4
    assert body["usage"]["completion_tokens"] == 90
    shown = ok(http.post(COMPLETIONS, json={**asked, "logprobs": 1}))["choices"]
    assert [choice["text"] for choice in shown] == expected
    assert all(math.isfinite(likelihood(choice)) for choice in shown)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (COMPLETIONS, {"best_of": 1, "n": 2}, "best_of"),
        (COMPLETIONS, {"best_of": 2, "stream": True}, "best_of"),
        (COMPLETIONS, {"best_of": 2, "echo": True}, "best_of"),
        (COMPLETIONS, {"prompt_logprobs": 2, "stream": True}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 2, "stream": True}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (COMPLETIONS, {"suffix": "the end"}, "suffix"),
        (COMPLETIONS, {"temperature": 101}, "temperature"),
        (CHAT, {"temperature": 101}, "temperature"),
        ("/v1/responses", {"return_token_ids": True, "input": "a"}, "return_token_ids"),
    ],
)
def test_what_is_refused_is_named(http: httpx.Client, path: str, fields: dict[str, Any], param: str) -> None:
    body = {CHAT: chat(), COMPLETIONS: ANSWER}.get(path, {})
    assert error_of(http.post(path, json={**body, **fields}))["param"] == param


def test_as_many_as_best_of_is_no_choice(http: httpx.Client) -> None:
    plain = http.post(COMPLETIONS, json={**ANSWER, "n": 2})
    same = http.post(COMPLETIONS, json={**ANSWER, "n": 2, "best_of": 2})
    assert ok(same)["choices"] == ok(plain)["choices"]
    assert json.loads(same.text)["usage"] == json.loads(plain.text)["usage"]


A, B, END = 65, 66, 257
"""Tokens of the simulated model: two letters, and the end of an answer."""


def id_of(http: httpx.Client, control: str) -> int:
    (token,) = ok(http.post("/tokenize", json={"prompt": control, "add_special_tokens": False}))["tokens"]
    return int(token)


def answers(http: httpx.Client, **fields: Any) -> list[tuple[str, str]]:
    """Text and finish reason by both routes, and of their streams, which say the same."""
    found = []
    for path, asked in ((COMPLETIONS, {**ANSWER, "ignore_eos": False}), (CHAT, chat(max_tokens=9))):
        body = ok(http.post(path, json={**asked, **fields}))
        choice = body["choices"][0]
        text = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        chunks = chunks_of(http.post(path, json={**asked, **fields, **STREAM}).text)
        assert joined(chunks) == text
        finish = [
            one["finish_reason"] for chunk in chunks for one in chunk["choices"] if one["finish_reason"]
        ]
        assert finish == [choice["finish_reason"]]
        found.append((text, choice["finish_reason"]))
    return found


def test_an_answer_of_some_tokens_only(http: httpx.Client) -> None:
    for text, finish in answers(http, allowed_token_ids=[A, B]):
        assert set(text) <= {"A", "B"}
        # No token that ends the answer is allowed, however likely.
        assert (len(text), finish) == (9, "length")
    end = {"logit_bias": {str(END): 100}}
    assert answers(http, allowed_token_ids=[A, B], **end) == answers(http, allowed_token_ids=[A, B])
    assert answers(http, allowed_token_ids=[A, B, END], **end) == [("", "stop")] * 2
    # The usual way to classify.
    for text, finish in answers(http, allowed_token_ids=[A, B], max_tokens=1):
        assert text in ("A", "B")
        assert finish == "length"
    assert answers(http, allowed_token_ids=[]) == answers(http)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"allowed_token_ids": [A, 10**6]}, "allowed_token_ids[1]"),
        ({"allowed_token_ids": ["A"]}, "allowed_token_ids[0]"),
        ({"allowed_token_ids": [A], "guided_regex": "A"}, "allowed_token_ids"),
        (
            {"allowed_token_ids": [A], "tools": [{"type": "function", "function": {"name": "f"}}]},
            "allowed_token_ids",
        ),
    ],
)
def test_tokens_that_cannot_be_all_of_an_answer(http: httpx.Client, fields: Any, param: str) -> None:
    assert error_of(http.post(CHAT, json=chat(**fields)))["param"] == param


def test_control_tokens_can_be_shown(http: httpx.Client) -> None:
    name = "<|im_start|>"
    fields = {"logit_bias": {str(id_of(http, name)): 100}, "max_tokens": 3}
    assert answers(http, **fields) == [("", "length")] * 2
    shown = answers(http, **fields, skip_special_tokens=False, spaces_between_special_tokens=True)
    assert shown == [(name * 3, "length")] * 2
    # What ends an answer is no part of it.
    plain = answers(http, max_tokens=60)
    assert answers(http, max_tokens=60, skip_special_tokens=False) == plain


def test_a_prompt_without_the_token_that_begins_a_text(http: httpx.Client) -> None:
    for path, asked in ((COMPLETIONS, {**ANSWER, "max_tokens": 1}), (CHAT, chat(max_tokens=1))):
        counts = [
            ok(http.post(path, json={**asked, "add_special_tokens": add}))["usage"]["prompt_tokens"]
            for add in (None, True, False)
        ]
        assert counts == [counts[0], counts[0], counts[0] - 1]
