"""``POST /v1/grammar/validate`` over the simulated engine, and what refusals of grammars say elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, error_of, ok
from support.server import ServerProcess, wait_until
from support.sim import StartServer

VALIDATE = "/v1/grammar/validate"

KINDS: list[tuple[dict[str, Any], Any, Any]] = [
    (
        {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        {"a": 1},
        {"a": "1"},
    ),
    ({"json_schema": {"name": "x", "schema": {"enum": [1, 2]}, "strict": True}}, 2, 3),
    ({"regex": "[a-z]+[0-9]"}, "ab1", "1ab"),
    ({"choice": ["yes", "no"]}, "no", "yesno"),
    ({"lark": 'start: "n=" /[0-9]+/'}, "n=12", "n=x"),
    ({"llguidance": {"grammars": [{"json_schema": {"type": "boolean"}}]}}, True, "truest"),
    (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"name": "f", "arguments": {}},
        {"name": "g"},
    ),
]

MEMBERS = {
    "ok",
    "errors",
    "rules",
    "residual",
    "warnings",
    "normalized",
    "grammar_size",
    "compile_ms",
    "first_mask_tokens",
    "instances",
}

UNIQUE = {"type": "array", "items": {"type": "number"}, "uniqueItems": True}


@pytest.mark.parametrize(("grammar", "good", "bad"), KINDS)
def test_every_kind(http: httpx.Client, grammar: dict[str, Any], good: Any, bad: Any) -> None:
    report = ok(http.post(VALIDATE, json={**grammar, "instances": [good, bad]}))
    assert set(report) == MEMBERS
    assert report["ok"] is True, report
    assert report["errors"] == []
    assert report["normalized"]
    assert report["grammar_size"] > 0
    assert report["compile_ms"] > 0
    assert report["first_mask_tokens"] > 0
    accepted, rejected = report["instances"]
    assert accepted == {"accepted": True, "rejected_at": None, "reason": None}
    assert rejected["accepted"] is False
    assert isinstance(rejected["rejected_at"], int)
    assert rejected["reason"]


def test_a_text_is_rejected_where_it_goes_wrong(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    text = '{"a": "é"}'
    report = ok(http.post(VALIDATE, json={"json_schema": schema, "instances": [text, '{"a": 1']}))
    assert report["instances"][0]["rejected_at"] == text.index('"é')
    assert report["instances"][1]["rejected_at"] == len('{"a": 1')


def test_what_is_refused_is_explained(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": UNIQUE, "b": {"type": "stsring"}}}
    body = {"json_schema": schema, "instances": [{}], "residual": "refuse"}
    report = ok(http.post(VALIDATE, json=body))
    assert report["ok"] is False
    errors = {error["path"]: error for error in report["errors"]}
    assert set(errors) == {"json_schema.properties.a.uniqueItems", "json_schema.properties.b.type"}
    for error in errors.values():
        assert set(error) == {"path", "keyword", "message", "hint"}
        assert error["path"].endswith(error["keyword"])
        assert error["message"]
        assert error["hint"]
    assert report["normalized"] is None
    assert report["instances"][0]["accepted"] is None
    verified = ok(http.post(VALIDATE, json={"json_schema": UNIQUE}))
    assert verified["ok"] is True
    assert verified["residual"] == [{"path": "json_schema", "keyword": "uniqueItems"}]


def test_rules_are_named(http: httpx.Client) -> None:
    schema = {"oneOf": [{"type": "string"}, {"type": "integer", "not": {"const": 3}}]}
    report = ok(http.post(VALIDATE, json={"json_schema": schema, "instances": [3, 4, "x"]}))
    assert {"one-of", "not"} <= {rule["name"] for rule in report["rules"]}
    assert [verdict["accepted"] for verdict in report["instances"]] == [False, True, True]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "json_schema"),
        ({"instances": [1]}, "json_schema"),
        ({"regex": "a", "choice": ["a"]}, "choice"),
        ({"regex": ["a"]}, "regex"),
        ({"tools": {}}, "tools"),
        ({"regex": "a", "residual": True}, "residual"),
        ({"regex": "a", "unknown": 1}, "unknown"),
        ({"regex": "a", "instances": ["a"] * 1000}, "instances"),
        ({"regex": "a", "instances": ["a", "a" * 100_000]}, "instances[1]"),
    ],
)
def test_malformed_requests(http: httpx.Client, body: dict[str, Any], param: str) -> None:
    assert error_of(http.post(VALIDATE, json=body))["param"] == param


def test_deep_instances_are_refused(http: httpx.Client) -> None:
    body = b'{"regex": "a", "instances": [' + b"[" * 150 + b"]" * 150 + b"]}"
    response = http.post(VALIDATE, content=body, headers={"content-type": "application/json"})
    assert error_of(response)["type"] == "invalid_request_error"


HOSTILE: list[dict[str, Any]] = [
    {"json_schema": {"$ref": "#"}},
    {"json_schema": {"pattern": "((a{1,1000}){1,1000}){1,1000}", "type": "string"}},
    {"json_schema": {"type": "array", "minItems": 10**9}},
    {"json_schema": {"oneOf": [{"required": [f"k{i}"]} for i in range(60)]}},
    {"json_schema": {"allOf": [{"type": "string", "pattern": f"(a|b)*{c}(a|b){{20}}"} for c in "abab"]}},
    {"json_schema": {"type": "object", "properties": {f"p{i}": {} for i in range(4000)}}},
    {"regex": "(" * 5000},
    {"regex": "(a|aa)*" * 500},
    {"choice": ["x" * 1000] * 100},
    {"lark": "\n".join(f"r{i}: r{i + 1}" for i in range(5000))},
    {"llguidance": {"grammars": [{"json_schema": {}}] * 200}},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/nowhere"}}}]},
]


@pytest.mark.parametrize("body", HOSTILE)
def test_hostile_grammars_are_reported(http: httpx.Client, body: dict[str, Any]) -> None:
    report = ok(http.post(VALIDATE, json={**body, "instances": [{"a": 1}, "a" * 1000]}))
    assert report["ok"] is (report["errors"] == [])


def test_the_server_answers_probes_while_it_compiles(start_server: StartServer) -> None:
    """With every compile slot taken by grammars that run into the deadline."""
    server = start_server()
    slow = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(4900)}}

    def post(salt: int) -> httpx.Response:
        schema = {**slow, "title": str(salt)}
        return httpx.post(server.base_url + VALIDATE, json={"json_schema": schema}, timeout=60)

    with ThreadPoolExecutor(8) as pool:
        reports = [pool.submit(post, salt) for salt in range(8)]
        probes = 0
        while not all(report.done() for report in reports):
            assert server.get("/v1/health/live").status_code == 200
            assert server.get("/v1/health/ready").status_code == 200
            probes += not all(report.done() for report in reports)
        assert probes > 0
        for report in reports:
            assert report.result().status_code == 200
    assert server.process.poll() is None
    wait_until(server.is_idle, "the server is idle")


def test_the_route_needs_the_key(start_server: StartServer) -> None:
    server: ServerProcess = start_server(server={"api_key": "secret"})
    url = server.base_url + VALIDATE
    error_of(httpx.post(url, json={"regex": "a"}, timeout=60), 401)
    ok(httpx.post(url, json={"regex": "a"}, headers={"authorization": "Bearer secret"}, timeout=60))


def test_the_route_is_documented(http: httpx.Client) -> None:
    document = ok(http.get("/openapi.json"))
    assert "post" in document["paths"][VALIDATE]
    assert "instances" in document["components"]["schemas"]["ValidateRequest"]["properties"]


SURFACES: list[tuple[str, dict[str, Any]]] = [
    (
        "response_format.json_schema.schema",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": None}}},
    ),
    ("response_format.schema", {"response_format": {"type": "json_object", "schema": None}}),
    ("guided_json", {"guided_json": None}),
    ("structured_outputs.json", {"structured_outputs": {"json": None}}),
    ("json_schema", {"json_schema": None}),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    (UNIQUE, "uniqueItems"),
    ({"type": "string", "pattern": "((("}, "pattern"),
    ({"type": "stsring"}, "type"),
    ({"$ref": "#/$defs/nowhere"}, "$ref"),
    ({"type": "string", "minLength": -1}, "minLength"),
    ({"type": "integer", "not": {"multipleOf": 7}}, "not"),
]


def _with(fields: Any, schema: Any) -> Any:
    if fields is None:
        return schema
    if isinstance(fields, dict):
        return {name: _with(value, schema) for name, value in fields.items()}
    return fields


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("param", "fields"), SURFACES)
@pytest.mark.parametrize(("inner", "keyword"), REFUSED)
def test_a_refused_schema_of_a_request_says_where_why_and_what_else(
    http: httpx.Client, path: str, param: str, fields: dict[str, Any], inner: dict[str, Any], keyword: str
) -> None:
    schema = {"type": "object", "properties": {"a": inner}, "required": ["a"]}
    schema["x-guidance"] = {"residual": "refuse"}
    body = chat(max_tokens=5) if path == CHAT else {"prompt": "x", "max_tokens": 5}
    error = error_of(http.post(path, json={**body, **_with(fields, schema)}))
    assert error["param"] == f"{param}.properties.a.{keyword}"
    assert f"`{keyword}`" in error["message"]
    report = ok(http.post(VALIDATE, json={"json_schema": schema}))["errors"][0]
    assert report["hint"]
    assert error["message"] == f"{error['param']}: {report['message']}; {report['hint']}"
