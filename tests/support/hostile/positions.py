"""Every place of every request body where a value may stand, found in the server's own OpenAPI document."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_DEPTH = 4
MODEL = "sim-model"
_HOLE = "@hole@"
_PARAMETER = re.compile(r"\{\w+\}")
"""In paths: it is always the model's name."""

Pointer = tuple[str | int, ...]

_MESSAGES = [{"role": "user", "content": "Hi"}]
_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": _MESSAGES, "max_tokens": 2},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 2},
    "/completion": {"prompt": "Hi", "n_predict": 2},
    "/infill": {"input_prefix": "Hi", "n_predict": 2},
    "/v1/grammar/validate": {"json_schema": {"type": "integer"}, "instances": [1]},
}
"""A small valid body of a route; of others it is made from what the document requires."""

UNTYPED: dict[str, list[tuple[dict[str, Any], Pointer]]] = {
    "/v1/chat/completions": [
        *(
            ({"messages": [{"role": "user", "content": "Hi"}]}, ("messages", 0, at))
            for at in ("role", "content")
        ),
        *(
            (
                {"messages": [*_MESSAGES, {"role": "assistant", "content": "a", "tool_calls": [_CALL]}]},
                ("messages", 1, *at),
            )
            for at in (
                ("content",),
                ("tool_calls",),
                ("tool_calls", 0),
                ("tool_calls", 0, "id"),
                ("tool_calls", 0, "type"),
                ("tool_calls", 0, "function"),
                ("tool_calls", 0, "function", "name"),
                ("tool_calls", 0, "function", "arguments"),
                ("reasoning_content",),
                ("name",),
                ("refusal",),
                ("function_call",),
            )
        ),
        (
            {"messages": [*_MESSAGES, {"role": "tool", "tool_call_id": "c", "content": "1"}]},
            ("messages", 1, "tool_call_id"),
        ),
        *(
            ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, at)
            for at in (
                ("messages", 0, "content", 0),
                ("messages", 0, "content", 0, "type"),
                ("messages", 0, "content", 0, "text"),
                ("messages", 0, "content", 0, "image_url"),
            )
        ),
        *(
            (
                {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
                ("response_format", *at),
            )
            for at in (("type",), ("json_schema",), ("json_schema", "schema"), ("json_schema", "strict"))
        ),
        *(
            ({"guided_json": {"type": "object", "properties": {"a": {}}}}, ("guided_json", *at))
            for at in (
                ("type",),
                ("properties",),
                ("properties", "a"),
                ("required",),
                ("enum",),
                ("const",),
                ("$ref",),
                ("$defs",),
                ("allOf",),
                ("not",),
                ("minProperties",),
                ("patternProperties",),
                ("x-guidance",),
            )
        ),
        *(
            ({"guided_json": {"type": "string"}}, ("guided_json", at))
            for at in ("pattern", "format", "maxLength")
        ),
        *(({"guided_json": {"type": "number"}}, ("guided_json", at)) for at in ("minimum", "multipleOf")),
        *(
            ({"guided_json": {"type": "array"}}, ("guided_json", at))
            for at in ("items", "minItems", "contains")
        ),
        *(
            ({"tools": [_TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, at)
            for at in (
                ("tools", 0),
                ("tools", 0, "function", "name"),
                ("tools", 0, "function", "parameters"),
                ("tools", 0, "function", "parameters", "properties"),
                ("tool_choice",),
                ("tool_choice", "function"),
                ("tool_choice", "function", "name"),
            )
        ),
    ],
}
"""Places that the document does not describe, with the body that they are in."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the body of a route.

    Attributes:
        path: the route.
        pointer: members and indices that lead to the place.
        body: a valid body, without what is to stand there.
    """

    path: str
    pointer: Pointer
    body: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.path} {'.'.join(map(str, self.pointer))}"

    def filled(self, value: str) -> bytes:
        """The body with a value, which is JSON text, or is meant to look so."""
        return (
            _set(self.body, self.pointer, _HOLE).replace(f'"{_HOLE}"', value).encode(errors="surrogatepass")
        )


def positions(document: dict[str, Any]) -> list[Position]:
    """All of a document."""
    found = []
    for path, operations in document["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            continue
        path = _PARAMETER.sub(MODEL, path)
        schema = content["application/json"]["schema"]
        body = BASES.get(path) or _sample(document, schema)
        found += [Position(path, pointer, body) for pointer in _pointers(document, schema, ())]
        found += [Position(path, at, {**body, **more}) for more, at in UNTYPED.get(path, [])]
    return found


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself: what a reference means, and of alternatives the one that says most."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            continue
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not branches:
            return schema
        resolved = [_resolve(document, branch) for branch in branches]
        schema = max(resolved, key=lambda one: ("properties" in one) * 2 + ("items" in one))


def _pointers(document: dict[str, Any], schema: dict[str, Any], at: Pointer) -> Iterator[Pointer]:
    if at:
        yield at
    if len(at) >= MOST_DEPTH:
        return
    schema = _resolve(document, schema)
    for name, member in schema.get("properties", {}).items():
        yield from _pointers(document, member, (*at, name))
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        yield from _pointers(document, schema["items"], (*at, 0))


def _sample(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    """The smallest value that a schema of this document takes."""
    schema = _resolve(document, schema)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            members = schema.get("properties", {})
            return {name: _sample(document, members.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [_sample(document, schema.get("items", {}))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return "Hi"


def _set(body: dict[str, Any], pointer: Pointer, value: str) -> str:
    """The text of a body with a value at a place; what is missing on the way is made."""
    body = copy.deepcopy(body)
    parent: Any = body
    for step, after in itertools.pairwise(pointer):
        child: Any = [] if isinstance(after, int) else {}
        if isinstance(step, int):
            if not parent:
                parent.append(child)
            parent = parent[step]
        else:
            if not isinstance(parent.get(step), type(child)):
                parent[step] = child
            parent = parent[step]
    last = pointer[-1]
    if isinstance(last, int):
        parent[last:] = [value]
    else:
        parent[last] = value
    return json.dumps(body)
