"""``llgtrt.schema``: schemas rewritten and judged without a server."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, grammar_from

from llgtrt.schema import Normalized, Problem, SchemaError, accepts, check, explain, normalize

ONE_OF = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "additionalProperties": False,
    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
}
UNIQUE = {
    "type": "object",
    "properties": {"tags": {"type": "array", "uniqueItems": True}},
    "required": ["tags"],
}


def accepts_text(grammar: str, text: str) -> bool:
    """Whether llguidance's own package accepts the text under the grammar."""
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, grammar)
    assert matcher.get_error() == ""
    return matcher.consume_tokens(tokenizer.tokenize_str(text)) and matcher.is_accepting()


def takes(normalized: Normalized, text: str) -> bool:
    """As `accepts_text`; both ways to hand the grammar over agree."""
    accepted = {accepts_text(grammar, text) for grammar in (normalized.llguidance(), normalized.lark())}
    assert len(accepted) == 1
    return accepted.pop()


def test_what_is_normalized_runs_in_llguidance() -> None:
    normalized = normalize(ONE_OF)
    assert not normalized.is_lark
    assert "one-of-exclusive" in {rule.name for rule in normalized.rules}
    assert normalized.residual == ()
    assert takes(normalized, '{"a":1}')
    assert takes(normalized, '{"b":1}')
    assert not takes(normalized, '{"a":1,"b":1}')


def test_a_schema_that_llguidance_holds_stays() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}
    assert normalize(schema) == Normalized(schema, (), ())


def test_what_no_schema_says_becomes_lark() -> None:
    normalized = normalize({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}})
    assert normalized.is_lark
    assert takes(normalized, "[1,7,2]")
    assert not takes(normalized, "[1,2]")


def test_what_no_grammar_holds_is_named_or_refused() -> None:
    residual = normalize(UNIQUE).residual
    assert [(left.path, left.keyword) for left in residual] == [("properties.tags", "uniqueItems")]
    with pytest.raises(SchemaError, match="no grammar can hold") as caught:
        normalize(UNIQUE, residual="refuse")
    assert (caught.value.path, caught.value.keyword) == ("properties.tags.uniqueItems", "uniqueItems")
    assert caught.value.hint


def test_all_problems_are_reported() -> None:
    schema = {"properties": {"a": {"pattern": "("}, "b": {"minimum": "1"}}}
    report = check(schema)
    assert not report.ok
    assert {problem.path for problem in report.problems} == {
        "properties.a.pattern",
        "properties.b.minimum",
    }
    assert all(isinstance(problem, Problem) and problem.message for problem in report.problems)
    assert check(ONE_OF).ok
    assert check(ONE_OF).problems == ()


@pytest.mark.parametrize(
    ("schema", "instance", "expected"),
    [
        (ONE_OF, {"b": 1}, True),
        (ONE_OF, {"b": 1, "a": 1}, False),
        # A string is a value, not the text of one.
        ({"type": "integer"}, "1", False),
        ({"type": "string", "maxLength": 2}, '"', True),
        ({"type": "string", "minLength": 3}, '"a', False),
        # Checked beside the grammar.
        (UNIQUE, {"tags": [1, 2]}, True),
        (UNIQUE, {"tags": [1, 1.0]}, False),
        # Any order of keys.
        ({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}, {"b": 1, "a": 1}, True),
        # References of every kind.
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#"}}}}, [[[]]], True),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#"}}}}, [[1]], False),
        (
            {
                "$id": "http://x.y/z",
                "items": {"$ref": "z#/definitions/n"},
                "definitions": {"n": {"type": "null"}},
            },
            [0],
            False,
        ),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, 1.0, False),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"}, 1.0, True),
        (True, {"x": [None]}, True),
    ],
)
def test_instances_are_judged(schema: Any, instance: Any, expected: bool) -> None:
    assert accepts(schema, instance) is expected


def test_a_refused_schema_judges_nothing() -> None:
    with pytest.raises(SchemaError) as caught:
        accepts({"properties": {"a": {"pattern": "("}}}, {})
    assert caught.value.path == "properties.a.pattern"
    with pytest.raises(SchemaError, match="nothing"):
        normalize(False)


def test_the_letter_of_the_standard() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}}
    assert [rule.name for rule in normalize(schema).rules] == ["closed"]
    assert not accepts(schema, {"b": 1})
    assert normalize(schema, standard=True).rules == ()
    assert accepts(schema, {"b": 1}, standard=True)


def test_the_stages_are_explained() -> None:
    text = explain(ONE_OF)
    titles = ["## Formula", "## Normal form", "## Written", "## Grammar", "## Rules"]
    assert [line for line in text.splitlines() if line.startswith("## ")] == titles
    with pytest.raises(SchemaError) as caught:
        explain({"properties": {"a": {"pattern": "("}}})
    assert caught.value.path == "properties.a.pattern"


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError):
        normalize({"const": object()})
    with pytest.raises(ValueError, match="JSON"):
        accepts({}, math.nan)


def test_threads_share_it() -> None:
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda n: accepts({"type": "integer", "minimum": n}, 5), range(10)))
    assert verdicts == [n <= 5 for n in range(10)]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_the_example_prints_a_request(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(ONE_OF))
    script = Path(__file__).resolve().parents[2] / "examples" / "normalize_for_llguidance.py"
    command = [sys.executable, str(script), str(file), "--engine", engine]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "one-of-exclusive" in result.stderr
    request = json.loads(result.stdout)
    # As vLLM and SGLang read these fields; llama.cpp hands the text over as it is.
    grammar = {
        "vllm": lambda: grammar_from("grammar", request["structured_outputs"]["grammar"]),
        "sglang": lambda: grammar_from("ebnf", request["ebnf"]),
        "llama.cpp": lambda: grammar_from("lark", request["grammar"]),
    }[engine]()
    assert accepts_text(grammar, '{"a":1}')
    assert not accepts_text(grammar, '{"a":1,"b":1}')
