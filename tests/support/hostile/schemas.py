"""Schemas that once stopped the compilation of all others, or are made to: small to send, dear to read.

The whole corpus is the schema compiler's own (``rust/llgtrt-schema/examples/hostile_corpus.rs``); the full
form of the suite sends that too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

CORPUS = Path(__file__).parents[3] / "target" / "hostile-corpus.jsonl"
"""Where ``make hostile`` writes the compiler's corpus."""


def corpus() -> Iterator[tuple[str, str]]:
    """The compiler's corpus: a name and the text of a schema each."""
    with CORPUS.open(encoding="utf-8") as lines:
        for line in lines:
            # Some are nested too deeply for Python's parser.
            name, _, schema = line.rstrip("\n").removesuffix("}").partition(',"schema":')
            yield json.loads(name.removeprefix('{"name":')), schema


def corpus_of_suite() -> Iterator[tuple[str, str]]:
    """The schemas here, in the same form."""
    for name, schema in SCHEMAS.items():
        yield name, json.dumps(schema)


def _ladder(levels: int, link: Callable[[Schema], Schema], last: Schema) -> Schema:
    """Definitions d0 to dN, each made of references to the next."""
    steps = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(levels)}
    return {**steps, f"d{levels}": last}


def _nested(levels: int, wrap: Callable[[Schema], Schema], innermost: Schema) -> Schema:
    for _ in range(levels):
        innermost = wrap(innermost)
    return innermost


def _fan_out(keyword: str, levels: int = 29) -> Schema:
    return {
        "$ref": "#/$defs/d0",
        "$defs": _ladder(levels, lambda following: {keyword: [following, following]}, {"type": "null"}),
    }


SCHEMAS: dict[str, Schema] = {
    # Held a compile slot for good: ten references at each of fourteen levels, followed one by one.
    "unevaluatedProperties over a ladder": {
        "type": "object",
        "unevaluatedProperties": False,
        "allOf": [{"$ref": "#/$defs/d0"}],
        "$defs": _ladder(13, lambda following: {"allOf": [following] * 10}, {"properties": {"a": {}}}),
    },
    # Ended the checks of answers for everybody, after four requests.
    "uniqueItems beside pairs of references": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "integer"},
        "minItems": 1,
        "allOf": [{"$ref": "#/$defs/d0"}],
        "$defs": _ladder(45, lambda following: {"allOf": [following, following]}, {}),
    },
    # Took 681 MB.
    "long text against a counted pattern": {
        "type": "string",
        "not": {"const": "x"},
        "pattern": "^[ab]*a[ab]{100000}$",
        "enum": ["a" * 20_000],
    },
    "nested anyOf with unevaluatedProperties": _nested(
        30, lambda inner: {"anyOf": [inner, {"properties": {"p": {}}}], "unevaluatedProperties": False}, {}
    ),
    "ladder of allOf": _fan_out("allOf"),
    "ladder of anyOf": _fan_out("anyOf"),
    "ladder of oneOf": _fan_out("oneOf"),
    "2^30 alternatives": {
        "type": "object",
        "allOf": [{"oneOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(30)],
    },
    "complement of a counted pattern": {"type": "string", "not": {"pattern": "(a|b)*a(a|b){18}$"}},
    "counts inside counts": {"type": "string", "pattern": "^((a{1,1000}){1,1000}){1,1000}$"},
    "look-ahead far away": {"type": "string", "pattern": "^(?=.*a.{40}b)(?=.*b.{30}c).{1000}$"},
    "intersection of patterns": {
        "type": "string",
        "allOf": [{"pattern": f"a.{{{20 + i}}}b"} for i in range(12)],
    },
    "stars inside stars": {"type": "string", "pattern": "^" + "(" * 50 + "a" + "*b)" * 50 + "$"},
    "overlapping patterns of keys": {
        "type": "object",
        "patternProperties": {f"^.{{{i}}}[a-f]*$": {"minimum": i} for i in range(6)},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "8000 values": {"enum": [f"text {i}" for i in range(8000)]},
    "not 8000 values": {"type": "string", "not": {"enum": [f"text {i}" for i in range(8000)]}},
    "4000 properties": {
        "type": "object",
        "properties": {f"k{i}": {"type": "string"} for i in range(4000)},
        "minProperties": 2,
        "maxProperties": 40,
    },
    "counts of any size": {"type": ["array", "string"], "minItems": 10**14, "minLength": 10**14},
    "multiples that do not meet": {
        "type": "integer",
        "allOf": [{"multipleOf": 1_000_003 + 2 * i} for i in range(500)],
        "not": {"multipleOf": 3},
    },
    "contains many times": {
        "type": "array",
        "maxItems": 9,
        "allOf": [{"contains": {"const": i}, "minContains": 2, "maxContains": 9} for i in range(12)],
    },
    "uniqueItems of objects": {
        "type": "array",
        "uniqueItems": True,
        "minItems": 50,
        "items": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
    "web of references": {
        "$ref": "#/$defs/d0",
        "$defs": {
            f"d{i}": {
                "anyOf": [{"$ref": f"#/$defs/d{(i * 7 + j * 13) % 200}"} for j in range(20)],
                "not": {"const": i},
            }
            for i in range(200)
        },
    },
    "chain of required objects": {
        "$ref": "#/$defs/d0",
        "$defs": _ladder(
            1000, lambda following: {"type": "object", "properties": {"n": following}, "required": ["n"]}, {}
        ),
    },
    "itself": {"$ref": "#"},
    "nothing": {"not": {}},
    "90 levels": _nested(90, lambda inner: {"type": "array", "items": inner, "minItems": 1}, {}),
    "dependent keys in a circle": {
        "type": "object",
        "dependentRequired": {f"k{i}": [f"k{(i + 1) % 200}"] for i in range(200)},
    },
    "closed objects against each other": {
        "oneOf": [
            {
                "type": "object",
                "properties": {f"k{j}": {"maximum": i + j} for j in range(30)},
                "additionalProperties": False,
            }
            for i in range(30)
        ]
    },
}
