"""All the names of a constraint lead to one grammar, or to an error."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from llgtrt.serving import ChatRequest, RequestError, parse_request
from llgtrt.serving.protocol import Constraint, resolve_constraint
from llgtrt.serving.protocol.constraint import json_text, with_own_options
from llgtrt.tools import ControlTokens

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}


GBNF = 'root ::= "a" | "b"'
LARK = 'start: "a"'
CONST = {"type": "const_string", "value": "a"}
STRUCTURES = [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}]


def resolve(text: str | None = None, **fields: Any) -> Constraint | None:
    body = {"messages": [{}], **fields}
    return resolve_constraint(
        parse_request(ChatRequest, (text or json.dumps(body)).encode()), ControlTokens()
    )


CONSTRAINTS: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "json_object"}}, "json_object", "response_format"),
    (
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        "json_schema",
        "response_format.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        "json_schema",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}}},
        "json_schema",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "json_object",
        "response_format.json_schema",
    ),
    ({"response_format": {"type": "regex", "regex": "a+"}}, "regex", "response_format.regex"),
    ({"response_format": {"type": "choice", "choice": ["a", "b"]}}, "choice", "response_format.choice"),
    (
        {"response_format": {"type": "lark_grammar", "lark_grammar": 'start: "a"'}},
        "lark",
        "response_format.lark_grammar",
    ),
    (
        {"response_format": {"type": "llguidance", "grammar": {"grammars": []}}},
        "llguidance",
        "response_format.grammar",
    ),
    (
        {"response_format": {"type": "llguidance", "grammar": '{"grammars": []}'}},
        "llguidance",
        "response_format.grammar",
    ),
    ({"guided_json": SCHEMA}, "json_schema", "guided_json"),
    ({"guided_json": json.dumps(SCHEMA)}, "json_schema", "guided_json"),
    ({"guided_json": True}, "json_schema", "guided_json"),
    ({"guided_regex": "a"}, "regex", "guided_regex"),
    ({"guided_choice": ["a"]}, "choice", "guided_choice"),
    ({"guided_grammar": 'start: "a"'}, "lark", "guided_grammar"),
    ({"json_schema": SCHEMA}, "json_schema", "json_schema"),
    ({"regex": "a"}, "regex", "regex"),
    ({"grammar": 'start: "a"'}, "lark", "grammar"),
    ({"structured_outputs": {"json": SCHEMA}}, "json_schema", "structured_outputs.json"),
    ({"structured_outputs": {"regex": "a"}}, "regex", "structured_outputs.regex"),
    ({"structured_outputs": {"choice": ["a"]}}, "choice", "structured_outputs.choice"),
    ({"structured_outputs": {"grammar": 'start: "a"'}}, "lark", "structured_outputs.grammar"),
    ({"structured_outputs": {"json_object": True}}, "json_object", "structured_outputs.json_object"),
    ({"response_format": {"type": "text"}, "guided_regex": "a"}, "regex", "guided_regex"),
    # llama.cpp, TGI, SGLang, Fireworks, TensorRT-LLM, LiteLLM
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, "json_schema", "response_format.schema"),
    ({"response_format": {"type": "json", "value": SCHEMA}}, "json_schema", "response_format.value"),
    ({"response_format": {"type": "json", "schema": SCHEMA}}, "json_schema", "response_format.schema"),
    ({"response_format": {"type": "regex", "value": "a"}}, "regex", "response_format.value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": json.dumps(SCHEMA)}},
        "json_schema",
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "grammar", "grammar": GBNF}}, "lark", "response_format.grammar"),
    ({"response_format": {"type": "grammar", "grammar": LARK}}, "lark", "response_format.grammar"),
    ({"response_format": {"type": "ebnf", "ebnf": GBNF}}, "lark", "response_format.ebnf"),
    ({"response_schema": SCHEMA}, "json_schema", "response_schema"),
    ({"ebnf": GBNF}, "lark", "ebnf"),
    ({"grammar": GBNF}, "lark", "grammar"),
    ({"guided_grammar": GBNF}, "lark", "guided_grammar"),
    ({"response_format": {"type": "structural_tag", "format": CONST}}, "llguidance", "response_format"),
    (
        {"response_format": {"type": "structural_tag", "structures": STRUCTURES, "triggers": ["<"]}},
        "llguidance",
        "response_format",
    ),
    (
        {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": CONST})}},
        "llguidance",
        "structured_outputs.structural_tag",
    ),
    ({"structural_tag": {"format": CONST}}, "llguidance", "structural_tag"),
    # As vLLM's own class writes it out.
    (
        {
            "structured_outputs": {
                "json": SCHEMA,
                "regex": None,
                "choice": None,
                "grammar": None,
                "json_object": None,
                "disable_fallback": False,
                "disable_any_whitespace": False,
                "disable_additional_properties": None,
                "whitespace_pattern": None,
                "structural_tag": None,
                "_backend": None,
            }
        },
        "json_schema",
        "structured_outputs.json",
    ),
    # The same one twice, and the stricter of two.
    ({"guided_grammar": LARK, "structured_outputs": {"grammar": LARK}}, "lark", "structured_outputs.grammar"),
    (
        {"guided_choice": ["a"], "structured_outputs": {"choice": ["a"]}},
        "choice",
        "structured_outputs.choice",
    ),
    ({"guided_json": SCHEMA, "json_schema": SCHEMA}, "json_schema", "guided_json"),
    ({"response_format": {"type": "json_object"}, "guided_json": SCHEMA}, "json_schema", "guided_json"),
    ({"structured_outputs": {"json_object": True}, "guided_json": SCHEMA}, "json_schema", "guided_json"),
]


@pytest.mark.parametrize(("fields", "kind", "param"), CONSTRAINTS)
def test_p5_every_alias_is_enforced(fields: dict[str, Any], kind: str, param: str) -> None:
    constraint = resolve(**fields)
    assert constraint is not None
    assert constraint.grammar.kind == kind
    assert constraint.param == param


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}, {"response_format": None}])
def test_free_text(fields: dict[str, Any]) -> None:
    assert resolve(**fields) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"response_format": {"type": "json_object"}, "guided_json": {"type": "string"}}, "guided_json"),
        ({"guided_choice": ["a"], "structured_outputs": {"choice": ["b"]}}, "guided_choice"),
        ({"guided_json": SCHEMA, "json_schema": {**SCHEMA, "minProperties": 1}}, "json_schema"),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA, "json_schema": {"schema": SCHEMA}}},
            "response_format.schema",
        ),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs.regex"),
        ({"grammar": "a", "regex": "b"}, "grammar"),
        ({"response_format": {"type": "regex", "regex": "a", "choice": ["b"]}}, "response_format.choice"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema"),
    ],
)
def test_p5_conflicts_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
            "response_format.json_schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "regex"}}, "response_format.regex"),
        ({"response_format": {"type": "choice", "choice": []}}, "response_format.choice"),
        ({"response_format": {"type": "choice", "choice": ["a", ""]}}, "response_format.choice[1]"),
        ({"response_format": {"type": "text", "future": 1}}, "response_format.future"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"guided_json": ""}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_grammar": "  "}, "guided_grammar"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json": None, "regex": None}}, "structured_outputs"),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_things": True}},
            "structured_outputs.disable_additional_things",
        ),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
        ),
        ({"ebnf": "root ::= ("}, "ebnf"),
        ({"ebnf": LARK}, "ebnf"),
        ({"response_format": {"type": "regex", "value": {}}}, "response_format.value"),
        ({"response_format": {"type": "json_schema", "json_schema": "{"}}, "response_format.json_schema"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structural_tag": {"format": {"type": "xml"}}}, "structural_tag.format.type"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        (
            {"response_format": {"type": "structural_tag", "format": CONST, "triggers": ["a"]}},
            "response_format.triggers",
        ),
        ({"response_format": {"type": "json_object", "format": CONST}}, "response_format.format"),
    ],
)
def test_malformed_constraints_name_their_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolve(**fields)
    assert caught.value.param == param


def test_a_schema_with_an_infinite_number_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        resolve('{"messages": [{}], "guided_json": {"maximum": 1e999}}')
    assert caught.value.param == "guided_json"


def test_p15_property_order_is_kept() -> None:
    constraint = resolve(guided_json=json.dumps(SCHEMA))
    assert constraint is not None
    assert list(constraint.json_schema["properties"]) == ["b", "a"]


def test_what_the_request_says_beside_a_schema_wins_over_its_own_options() -> None:
    own = {"x-guidance": {"residual": "refuse", "standard": True}}
    assert with_own_options(own, None, strict=False) is own
    assert with_own_options(own, "verify", strict=True) == {
        "x-guidance": {"residual": "verify", "standard": True, "strict": True}
    }
    assert with_own_options({}, None, strict=True) == {"x-guidance": {"strict": True}}
    assert with_own_options(True, "verify", strict=True) is True


def test_a_schema_in_the_wrong_place_is_told_where_it_belongs() -> None:
    with pytest.raises(RequestError) as caught:
        resolve(response_format={"type": "json_schema", "json_schema": SCHEMA})
    assert 'put it into a member "schema"' in caught.value.message


@pytest.mark.parametrize(
    ("fields", "guidance"),
    [
        ({"structured_outputs": {"json": SCHEMA, "whitespace_pattern": "x?"}}, {"whitespace_pattern": "x?"}),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": "x?"}, {"whitespace_pattern": "x?"}),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            {"whitespace_flexible": False},
        ),
        (
            {
                "guided_json": {**SCHEMA, "x-guidance": {"whitespace_pattern": "y"}},
                "guided_whitespace_pattern": "x",
            },
            {"whitespace_pattern": "y"},
        ),
        (
            {"structured_outputs": {"json_object": True, "whitespace_pattern": "x"}},
            {"whitespace_pattern": "x"},
        ),
    ],
)
def test_the_whitespace_that_is_asked_for_reaches_the_grammar(
    fields: dict[str, Any], guidance: dict[str, Any]
) -> None:
    constraint = resolve(**fields)
    assert constraint is not None
    assert constraint.grammar.kind == "json_schema"
    assert json.loads(constraint.source)["x-guidance"] == guidance
    # What the prompt shows is the schema as it was given.
    given = fields.get("guided_json") or fields["structured_outputs"].get("json")
    assert constraint.json_schema == given


def test_both_encoders_write_the_same() -> None:
    value: Any = {"é": [1, 2.5, 10**30, None, True, "\u2028\n", {}, []], "b": {"c": {}}}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(json_text, value, "x").result() == json_text(value, "x")
        with pytest.raises(RequestError):
            pool.submit(json_text, float("inf"), "x").result()
