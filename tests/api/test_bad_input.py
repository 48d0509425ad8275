"""Nothing that a client sends may be a 5xx, or end the process."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, error_of, ok, text_of
from support.server import ServerProcess

JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True, scope="module")
def the_server_survives(server: ServerProcess, http: httpx.Client) -> Iterator[None]:
    before = text_of(ok(http.post(CHAT, json=chat())))
    yield
    assert server.process.poll() is None
    assert text_of(ok(http.post(CHAT, json=chat()))) == before
    assert server.is_idle()


BAD_BODIES = [
    b"",
    b"null",
    b"true",
    b"[1]",
    b'"x"',
    b"{",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    json.dumps(chat()).encode("utf-16"),
    json.dumps(chat()).encode("utf-16-le"),
    json.dumps(chat()).encode("utf-32"),
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
    b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
    b'{"messages": [{"role": "user", "content": "x"}], "metadata": {"x": -Infinity}}',
    b'{"messages": [{"role": "user", "content": "x"}], "n": 1' + b"0" * 100_000 + b"}",
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_bodies(http: httpx.Client, path: str, body: bytes) -> None:
    error_of(http.post(path, content=body, headers=JSON))


FLOATS = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
NOT_FLOATS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"1"', "true", "[]"]


@pytest.mark.parametrize("field", FLOATS)
@pytest.mark.parametrize("literal", NOT_FLOATS)
def test_numbers_that_are_none(http: httpx.Client, field: str, literal: str) -> None:
    body = json.dumps(chat())[:-1] + f', "{field}": {literal}}}'
    error_of(http.post(CHAT, content=body.encode(), headers=JSON))


BAD_FIELDS: list[dict[str, Any]] = [
    {"n": 129},
    {"n": 10**6},
    {"n": 2**63},
    {"n": -1},
    {"n": 0},
    {"n": 1.5},
    {"n": True},
    {"n": "1"},
    {"max_tokens": 0},
    {"max_tokens": -2},
    {"max_tokens": 2**64},
    {"max_completion_tokens": 0},
    {"top_k": -2},
    {"logprobs": True, "top_logprobs": 21},
    {"logprobs": True, "top_logprobs": 10**9},
    {"logit_bias": {"1000000": 1}},
    {"logit_bias": {"1": 1e999}},
    {"stop": ["x"] * 65},
    {"stop": [None]},
    {"stop_token_ids": [10**6]},
    {"stop_token_ids": list(range(10_000))},
    {"prompt_embeds": "AAAA"},
    {"custom_logit_processor": "x"},
    {"chat_template": "{{ ''.__class__ }}"},
    {"chat_template_kwargs": {"__class__": 1}},
    {"chat_template_kwargs": {"messages": []}},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    {"messages": [{"role": "user", "content": {"text": "x"}}]},
    {"messages": [{"role": "user", "content": [1]}]},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "user\n", "content": "x"}]},
    {"messages": [None]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"function": 1}]}]},
    {"tools": [{}]},
    {"tool_choice": "required"},
]


@pytest.mark.parametrize("fields", BAD_FIELDS)
def test_bad_fields_twice(http: httpx.Client, fields: dict[str, Any]) -> None:
    for stream in (False, True):
        response = (
            http.post(CHAT, json=chat(**fields, stream=stream))
            if "logit_bias" not in fields
            else (
                http.post(CHAT, content=json.dumps(chat(**fields)).replace("Infinity", "1e999"), headers=JSON)
            )
        )
        assert error_of(response)["param"]


def test_prompt_lists_are_bounded(http: httpx.Client) -> None:
    error_of(http.post(COMPLETIONS, json={"prompt": ["a"] * 100_000}))
    error_of(http.post(COMPLETIONS, json={"prompt": [[1]] * 100_000}))
    error_of(http.post(COMPLETIONS, json={"prompt": ["a"] * 65, "n": 2}))
    error_of(http.post(COMPLETIONS, json={"prompt": [2**40]}))


SCHEMA_SURFACES: list[Callable[[Any], dict[str, Any]]] = [
    lambda schema: {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    },
    lambda schema: {"response_format": {"type": "json_object", "schema": schema}},
    lambda schema: {"guided_json": schema},
    lambda schema: {"structured_outputs": {"json": schema}},
    lambda schema: {"json_schema": schema},
]

HOSTILE_SCHEMAS: list[Any] = [
    {"type": "stsring"},
    {"type": None},
    {"type": []},
    {"type": ""},
    {"properties": None},
    {"properties": {"a": 1}},
    {"items": [[[]]]},
    {"required": "a"},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/nowhere"},
    {"$ref": 1},
    {"enum": []},
    {"enum": [{"a": [None, True, "\u0000"]}]},
    {"pattern": "(((", "type": "string"},
    {"pattern": "(?=a)", "type": "string"},
    {"pattern": r"\1", "type": "string"},
    {"pattern": "a**", "type": "string"},
    {"pattern": "{{7*7}}", "type": "string"},
    {"pattern": "((a{1,1000}){1,1000}){1,1000}", "type": "string"},
    {"minLength": -1, "type": "string"},
    {"minLength": 10**20, "type": "string"},
    {"minimum": 5, "maximum": 1, "type": "integer"},
    {"minItems": 10**9, "type": "array"},
    {"multipleOf": 0, "type": "integer"},
    {"allOf": [False]},
    {"oneOf": []},
    {"x-guidance": {"whitespace_pattern": "("}},
    {"type": "object", "properties": {"a" * 10_000: {}}},
    {"type": "object", "properties": {f"p{i}": {} for i in range(600)}},
    False,
]


@pytest.mark.parametrize("schema", HOSTILE_SCHEMAS)
def test_hostile_schemas_are_served_or_refused(http: httpx.Client, schema: Any) -> None:
    for surface in SCHEMA_SURFACES:
        response = http.post(CHAT, json=chat(max_tokens=20, **surface(schema)))
        assert response.status_code in (200, 400), response.text
        if response.status_code == 400:
            assert error_of(response)["param"]


@pytest.mark.parametrize(
    "pattern", ["(((", "(?=a)", r"\1", "a**", "[z-a]", "a{1000000}", "(" * 5000, "a" * 100_000]
)
def test_hostile_patterns(http: httpx.Client, pattern: str) -> None:
    for fields in ({"guided_regex": pattern}, {"response_format": {"type": "regex", "regex": pattern}}):
        response = http.post(CHAT, json=chat(max_tokens=5, **fields))
        assert response.status_code in (200, 400), response.text


def test_json_test_suite(http: httpx.Client, shared_data: Path) -> None:
    """As the body, as a schema and as a grammar."""
    for line in (shared_data / "json-test-suite.jsonl").read_text().splitlines():
        case = json.loads(line)
        content = base64.b64decode(case["base64"])
        for path in (CHAT, COMPLETIONS):
            response = http.post(path, content=content, headers=JSON)
            assert 400 <= response.status_code < 500, (case["name"], response.text)
        for template in (b'"guided_json": %s', b'"metadata": %s', b'"logit_bias": %s', b'"stop": %s'):
            body = json.dumps(chat(max_tokens=3))[:-1].encode() + b", " + template % content + b"}"
            response = http.post(CHAT, content=body, headers=JSON)
            assert response.status_code < 500, (case["name"], template, response.text)


def test_naughty_strings(http: httpx.Client, shared_data: Path) -> None:
    """As a prompt, a role, a model, a stop string, a schema and a pattern."""
    for text in json.loads((shared_data / "naughty-strings.json").read_text()):
        for body in (
            chat(text, max_tokens=2),
            chat(max_tokens=2, messages=[{"role": text, "content": "x"}]),
            chat(max_tokens=2, model=text),
            chat(max_tokens=2, stop=[text]),
            chat(max_tokens=2, guided_json=text),
            chat(max_tokens=2, guided_regex=text),
            chat(max_tokens=2, guided_choice=[text, "b"]),
            chat(max_tokens=2, json_schema={"type": "object", "properties": {text: {"const": text}}}),
            chat(max_tokens=2, tool_choice=text),
        ):
            try:
                content = json.dumps(body).encode()
            except ValueError:
                continue
            response = http.post(CHAT, content=content, headers=JSON)
            assert response.status_code < 500, (text, response.text)
        response = http.post(COMPLETIONS, json={"prompt": text, "max_tokens": 2, "echo": True})
        assert response.status_code in (200, 400), (text, response.text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lora_model", "a"),
        ("bad_words", ["no"]),
        ("cache_salt", "mine"),
        ("allotted_time_ms", 1000),
        ("no_repeat_ngram_size", 3),
        ("top_p_decay", 0.9),
        ("top_p_min", 0.1),
        ("top_p_reset_ids", 7),
        ("kv_cache_retention", {"decode_retention_priority": 35}),
    ],
)
def test_what_another_engine_has_is_refused(http: httpx.Client, name: str, value: Any, stream: bool) -> None:
    requests = ((CHAT, chat(logprobs=True)), (COMPLETIONS, {"prompt": "x", "logprobs": 0}))
    for path, body in requests:
        error = error_of(http.post(path, json={**body, name: value, "stream": stream}))
        assert error["param"] == name
        assert f"{name} is not supported by the sim engine" in error["message"]
