"""What a validate request asks the core, and the schema of a tool call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llgtrt.engine import GrammarChecker
from llgtrt.serving import RequestError, ValidateRequest, parse_request
from llgtrt.serving.protocol.validate import instance_texts, resolve_question

CHECKER = GrammarChecker("{}")

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def validate(**fields: Any) -> dict[str, Any]:
    """The report, without a server."""
    request = parse_request(ValidateRequest, json.dumps(fields).encode())
    question = resolve_question(request)
    report: dict[str, Any] = json.loads(
        CHECKER.report(
            question.grammar,
            instances=instance_texts(request.instances),
            residual=question.residual,
            places=question.places,
        )
    )
    return report


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolve_question(parse_request(ValidateRequest, json.dumps(fields).encode()))
    return caught.value


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def verdicts(report: dict[str, Any]) -> list[bool | None]:
    assert report["ok"], report["errors"]
    return [verdict["accepted"] for verdict in report["instances"]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "json_schema"),
        ({"regex": "a", "lark": "start: /a/"}, "lark"),
        ({"json_schema": {}, "tools": []}, "tools"),
        ({"regex": 3}, "regex"),
        ({"json_schema": [1]}, "json_schema"),
        ({"choice": ["a", 1]}, "choice[1]"),
        ({"regex": "a", "instances": "a"}, "instances"),
        ({"regex": "a", "residual": "maybe"}, "residual"),
        ({"regex": "a", "instance": []}, "instance"),
        ({"json_schema": {"schema": {}, "residual": "maybe"}}, "json_schema.residual"),
        ({"tools": []}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [tool("a"), {"type": "function", "function": {}}]}, "tools[1].function.name"),
        ({"tools": [tool("a", "x")]}, "tools[0].function.parameters"),
        ({"tools": [tool("a"), tool("a")]}, "tools[1].function.name"),
        ({"tools": [tool(f"t{i}") for i in range(129)]}, "tools"),
    ],
)
def test_malformed_requests_name_the_field(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_a_number_out_of_range() -> None:
    request = parse_request(ValidateRequest, b'{"regex": "a", "instances": [1, 1e999]}')
    with pytest.raises(RequestError) as caught:
        instance_texts(request.instances)
    assert caught.value.param == "instances[1]"


def test_a_schema_by_itself_or_wrapped() -> None:
    bad = {"properties": {"a": {"not": 3}}}
    assert validate(json_schema=bad)["errors"][0]["path"] == "json_schema.properties.a.not"
    wrapped = {"name": "x", "schema": bad, "strict": True}
    assert validate(json_schema=wrapped)["errors"][0]["path"] == "json_schema.schema.properties.a.not"
    # A schema with an annotation of that name.
    assert verdicts(validate(json_schema={"type": "null", "schema": 3}, instances=[None, 1])) == [True, False]


def test_the_residual_of_the_wrapper_counts() -> None:
    schema = {"type": "array", "items": {"type": "number"}, "uniqueItems": True}
    assert validate(json_schema=schema, residual="refuse")["errors"][0]["keyword"] == "uniqueItems"
    for fields in (
        {"json_schema": schema, "residual": "verify"},
        {"json_schema": {"schema": schema, "residual": "verify"}},
    ):
        report = validate(**fields)
        assert report["ok"]
        assert [left["keyword"] for left in report["residual"]] == ["uniqueItems"]


def test_one_call_of_one_tool() -> None:
    report = validate(
        tools=[tool("move", POINT), tool("stop")],
        instances=[
            call("move", x=1),
            call("stop"),
            {"arguments": {}, "name": "stop"},
            '{"name":"move","arguments":{"x":1}}',
            call("move"),
            call("stop", x=1),
            call("jump"),
            {"name": "stop"},
            {"x": 1},
        ],
    )
    assert verdicts(report) == [True, True, True, True, False, False, False, False, False]


@pytest.mark.parametrize(
    "draft",
    [
        None,
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
@pytest.mark.parametrize("at_root", [False, True])
@pytest.mark.parametrize("identifier", [None, "http://x.example/a", "#a"])
def test_references_in_parameters_stay_inside(
    draft: str | None, at_root: bool, identifier: str | None
) -> None:
    def parameters(value: str) -> dict[str, Any]:
        inner = {"type": "object", "properties": {"x": {"enum": [value]}}, "required": ["x"]}
        schema: dict[str, Any] = {"definitions": {"inner": inner}}
        if draft is not None:
            schema["$schema"] = draft
        if identifier is not None:
            schema["id" if draft is not None and "-04" in draft else "$id"] = identifier
        if at_root:
            return {**schema, "$ref": "#/definitions/inner"}
        return {
            **schema,
            "type": "object",
            "properties": {"x": {"$ref": "#/definitions/inner/properties/x"}},
            "required": ["x"],
        }

    report = validate(
        tools=[tool("a", parameters("of a")), tool("b", parameters("of b"))],
        instances=[call("a", x="of a"), call("b", x="of b"), call("a", x="of b"), call("b", x="of a")],
    )
    assert verdicts(report) == [True, True, False, False]


def test_errors_lead_into_the_tool() -> None:
    bad = {"type": "object", "properties": {"x": {"type": "string", "pattern": "((("}, "y": {"type": "no"}}}
    report = validate(tools=[tool("good", POINT), tool("bad", bad)])
    assert {error["path"] for error in report["errors"]} == {
        "tools[1].function.parameters.properties.x.pattern",
        "tools[1].function.parameters.properties.y.type",
    }


def test_paths_of_the_other_kinds_begin_with_the_field() -> None:
    assert validate(choice=["a", ""])["errors"][0]["path"] == "choice[1]"
    assert validate(regex="(((")["errors"][0]["path"] == "regex"
    assert validate(lark="start: missing")["errors"][0]["path"] == "lark"
    grammars = {"grammars": [{"json_schema": {"type": "no"}}]}
    assert validate(llguidance=grammars)["errors"][0]["path"] == "llguidance.grammars[0].json_schema.type"
    assert validate(llguidance='start: "a"', instances=["a", "b"])["instances"][0]["accepted"]
