"""Constraints under every name that clients use (P3 to P8)."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import jsonschema
import pytest

from support.api import (
    CHAT,
    COMPLETIONS,
    PERSON,
    chat,
    error_of,
    joined,
    json_schema_format,
    ok,
    stream_chunks,
    text_of,
)
from support.sim import StartServer


@pytest.mark.parametrize("seed", range(5))
def test_p3_whitespace_is_bounded(http: httpx.Client, seed: int) -> None:
    body = chat(seed=seed, response_format=json_schema_format(PERSON))
    text = text_of(ok(http.post(CHAT, json=body)))
    assert not re.search(r"\s{20}", re.sub(r'"(\\.|[^"\\])*"', '""', text))
    jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "object", "properties": {"a": {"not": {"multipleOf": 7}}}}, "properties.a"),
        ({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, "properties.a"),
        ({"type": "stsring"}, ""),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}}, "properties.a"),
        ({"$ref": "https://example.com/schema.json"}, ""),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_p4_unsupported_schemas_are_refused_with_a_path(
    http: httpx.Client, schema: Any, path: str, stream: bool
) -> None:
    response_format = json_schema_format(schema)
    response_format["json_schema"]["residual"] = "refuse"
    error = error_of(http.post(CHAT, json=chat(response_format=response_format, stream=stream)))
    assert error["param"].startswith("response_format.json_schema.schema")
    assert path in error["param"]
    assert error["type"] == "invalid_request_error"


ALIASES: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "regex", "regex": "[ab]{3}"}}, "[ab]{3}"),
    ({"response_format": {"type": "choice", "choice": ["yes", "no"]}}, "yes|no"),
    ({"response_format": {"type": "lark_grammar", "lark_grammar": 'start: "x" /[0-9]/ "y"'}}, "x[0-9]y"),
    (
        {
            "response_format": {
                "type": "llguidance",
                "grammar": {"grammars": [{"lark_grammar": 'start: "lo" /[0-9]{2}/'}]},
            }
        },
        "lo[0-9]{2}",
    ),
    ({"guided_regex": "[ab]{3}"}, "[ab]{3}"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"guided_grammar": 'start: "x" /[0-9]/'}, "x[0-9]"),
    ({"guided_json": {"enum": [1, 2]}}, "[12]"),
    ({"guided_json": '{"enum": [1, 2]}'}, "[12]"),
    ({"structured_outputs": {"regex": "[ab]{3}"}}, "[ab]{3}"),
    ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ({"structured_outputs": {"grammar": 'start: "x" /[0-9]/'}}, "x[0-9]"),
    ({"structured_outputs": {"json": {"const": "z"}}}, '"z"'),
    ({"grammar": 'start: "x" /[0-9]/'}, "x[0-9]"),
    ({"regex": "[ab]{3}"}, "[ab]{3}"),
    ({"json_schema": {"const": 5}}, "5"),
]


@pytest.mark.parametrize(("fields", "pattern"), ALIASES)
def test_p5_every_alias_is_enforced_on_both_routes(
    http: httpx.Client, fields: dict[str, Any], pattern: str
) -> None:
    answer = ok(http.post(CHAT, json=chat(**fields)))
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert re.fullmatch(pattern, text_of(answer)), text_of(answer)
    completion = ok(http.post(COMPLETIONS, json={"prompt": "Go", "max_tokens": 50, **fields}))
    assert re.fullmatch(pattern, completion["choices"][0]["text"])


@pytest.mark.parametrize("strict", [True, False, None])
@pytest.mark.parametrize("stream", [False, True])
def test_p5_the_schema_is_enforced_whatever_strict_says(
    http: httpx.Client, strict: bool | None, stream: bool
) -> None:
    body = chat(response_format=json_schema_format(PERSON, strict=strict))
    text = joined(stream_chunks(http, CHAT, body)) if stream else text_of(ok(http.post(CHAT, json=body)))
    jsonschema.validate(json.loads(text), PERSON)
    assert list(json.loads(text)) == ["name", "age", "tags"]


def test_p5_json_object(http: httpx.Client) -> None:
    text = text_of(ok(http.post(CHAT, json=chat(response_format={"type": "json_object"}))))
    assert isinstance(json.loads(text), dict)


BAD_GRAMMARS = [
    {"guided_regex": "((("},
    {"guided_regex": r"(a)\1"},
    {"guided_regex": "(?=a)"},
    {"guided_grammar": "start: ((("},
    {"guided_grammar": 'root ::= "a'},
    {"guided_json": {"type": "object", "properties": []}},
    {"guided_json": {"pattern": "{{x}}", "type": "string"}},
    {"response_format": {"type": "llguidance", "grammar": "not json"}},
    {"response_format": {"type": "llguidance", "grammar": {"grammars": [{"lark_grammar": "("}]}}},
]


@pytest.mark.parametrize("fields", BAD_GRAMMARS)
def test_p7_a_bad_grammar_fails_its_own_request_only(http: httpx.Client, fields: dict[str, Any]) -> None:
    before = text_of(ok(http.post(CHAT, json=chat())))
    for stream in (False, True):
        error = error_of(http.post(CHAT, json=chat(**fields, stream=stream)))
        assert error["param"].startswith(next(iter(fields)))
    assert text_of(ok(http.post(CHAT, json=chat()))) == before


def test_p8_deep_and_large_schemas_are_refused_quickly(http: httpx.Client) -> None:
    deep: Any = {"type": "string"}
    for _ in range(150):
        deep = {"items": deep}
    chain = {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(3000)}
    chain["d3000"] = {"type": "string"}
    many = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(6000)}}
    for schema in (deep, {"$defs": chain, "$ref": "#/$defs/d0"}, many, {"enum": list(range(100_000))}):
        error = error_of(http.post(CHAT, json=chat(guided_json=schema)))
        assert error["param"].startswith("guided_json")


def test_messages_about_schemas_name_the_place(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "stsring"}}}
    error = error_of(http.post(CHAT, json=chat(guided_json=schema)))
    assert error["param"].startswith("guided_json.properties.a")
    assert error["message"].startswith(error["param"] + ": ")


def test_a_grammar_of_llamacpp_is_enforced(http: httpx.Client) -> None:
    gbnf = 'root ::= "(" root ")" | digit\ndigit ::= [0-9]'
    for fields in ({"grammar": gbnf}, {"ebnf": gbnf}, {"response_format": {"type": "ebnf", "ebnf": gbnf}}):
        text = text_of(ok(http.post(CHAT, json=chat(max_tokens=400, **fields))))
        assert re.fullmatch(r"\(*[0-9]\)*", text), text
        assert text.count("(") == text.count(")")


def test_the_whitespace_of_json_can_be_forbidden(http: httpx.Client) -> None:
    outputs = {"json": PERSON, "regex": None, "disable_any_whitespace": True}
    for seed in range(5):
        text = text_of(ok(http.post(CHAT, json=chat(seed=seed, structured_outputs=outputs))))
        assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', '""', text)), text


def test_the_schema_is_shown_to_the_model_when_asked_for(http: httpx.Client) -> None:
    body = chat(
        response_format=json_schema_format(PERSON),
        return_expanded_prompt=True,
        include_json_schema_in_prompt=True,
    )
    assert '"maxLength": 8' in ok(http.post(CHAT, json=body))["expanded_prompt"]
    del body["include_json_schema_in_prompt"]
    assert "maxLength" not in ok(http.post(CHAT, json=body))["expanded_prompt"]


NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object", "response_schema": NUMBER}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": json.dumps(NUMBER)},
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": json.dumps({"name": "x", "strict": True, "schema": NUMBER}),
            }
        },
        {"response_format": {"type": "json_schema", "json_schema": json.dumps(NUMBER)}},
        {
            "structured_outputs": {
                "json": NUMBER,
                "regex": None,
                "structural_tag": None,
                "disable_fallback": False,
                "disable_any_whitespace": False,
                "disable_additional_properties": False,
                "_backend": None,
            }
        },
    ],
)
def test_forms_of_other_servers(http: httpx.Client, fields: dict[str, Any]) -> None:
    answer = json.loads(text_of(ok(http.post(CHAT, json=chat(**fields)))))
    assert set(answer) == {"a"}
    assert isinstance(answer["a"], int)


def test_objects_are_closed_when_asked_for(start_server: StartServer) -> None:
    server = start_server(llguidance={"standard": True})
    outputs = {"json": NUMBER, "disable_additional_properties": True}
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        for seed in range(5):
            body = {**chat(structured_outputs=outputs), "seed": seed}
            assert set(json.loads(text_of(ok(http.post(CHAT, json=body))))) == {"a"}


BRANCHES: dict[str, Any] = {
    "type": "object",
    "properties": {"c": {"type": "integer", "minimum": 5, "maximum": 6}},
    "allOf": [
        {"properties": {"a": {"enum": [1, 2, 3]}}},
        {"properties": {"a": {"enum": [2, 3, 4]}, "b": {"maxLength": 2}}},
        {"required": ["a", "b"], "properties": {"b": {"pattern": "^[xy]+$"}}},
    ],
}
UNTYPED: dict[str, Any] = {"minimum": 5, "maximum": 6, "maxLength": 3, "maxItems": 1, "maxProperties": 1}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("schema", [BRANCHES, UNTYPED], ids=["branches", "untyped"])
def test_p34_all_branches_count_and_keywords_without_a_type(
    http: httpx.Client, schema: dict[str, Any], seed: int
) -> None:
    body = chat(seed=seed, response_format=json_schema_format(schema), max_tokens=200)
    value = json.loads(text_of(ok(http.post(CHAT, json=body))))
    jsonschema.validate(value, schema)
    if schema is BRANCHES:
        assert value["a"] in (2, 3)
        assert not isinstance(value["b"], str) or re.fullmatch("[xy]{1,2}", value["b"])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 1_000_000},
        {"type": "array", "items": {"type": "string", "maxLength": 100_000}, "maxItems": 100_000},
        {"type": "string", "pattern": "^[a-z]{1,5000}$"},
        {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 10_000},
    ],
)
def test_p35_large_repetitions_of_agents_schemas_are_served(
    http: httpx.Client, schema: dict[str, Any]
) -> None:
    wrapped = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "additionalProperties": False,
    }
    text = text_of(ok(http.post(CHAT, json=chat(guided_json=wrapped, max_tokens=60))))
    jsonschema.validate(json.loads(text), wrapped)
