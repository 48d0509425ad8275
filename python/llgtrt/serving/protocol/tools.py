"""OpenAI's tool definitions, and the schema of a call."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.constraint import json_text
from llgtrt.serving.protocol.fields import RequestModel

MAX_TOOLS = 128
MAX_LISTED = 1024
"""Tools in a request, those that are not looked at included."""


class FunctionDefinition(RequestModel):
    """What a tool is called and takes."""

    name: str = Field(min_length=1, max_length=256, description="Name that a call gives.")
    description: str | None = None
    parameters: dict[str, Any] | None = Field(
        default=None, description="JSON schema of the arguments; without it there are none."
    )
    strict: bool | None = Field(default=None, description="The schema is enforced whatever this says.")


class ToolDefinition(RequestModel):
    """One tool."""

    type: Literal["function"]
    function: FunctionDefinition


class ChatTool(RequestModel):
    """One tool of a conversation. One of another type than ``function`` is a service of some other server."""

    type: str = Field(
        min_length=1,
        max_length=256,
        description="'function'. Tools of other types are ignored, and named in the header "
        "X-Llgtrt-Ignored-Tools.",
    )
    function: FunctionDefinition | None

    @model_validator(mode="before")
    @classmethod
    def _other_types_are_not_looked_at(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(kind := value.get("type"), str) and kind != "function":
            return {"type": kind, "function": None}
        return value


def tools_grammar(tools: list[ToolDefinition]) -> tuple[GrammarSpec, list[tuple[str, str]]]:
    """The grammar of one call, ``{"name": ..., "arguments": {...}}``, and where its parts come from.

    Raises:
        RequestError: there are none, too many, or two of one name.
    """
    if not tools:
        raise RequestError("tools needs at least one tool.", "tools")
    if len(tools) > MAX_TOOLS:
        raise RequestError(f"tools may hold at most {MAX_TOOLS} tools.", "tools")
    calls = []
    places = []
    names: set[str] = set()
    identifiers: set[str] = set()
    for index, tool in enumerate(tools):
        function = tool.function
        param = f"tools[{index}].function"
        if function.name in names:
            raise RequestError(f"{param}.name: two tools have the same name.", f"{param}.name")
        names.add(function.name)
        arguments, inner = _as_resource(function.parameters, f"tool-{index}", identifiers)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": arguments},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
        at = f"anyOf[{index}].properties.arguments"
        places += [
            (at + inner, f"{param}.parameters"),
            (at, f"{param}.parameters"),
            (f"anyOf[{index}]", param),
        ]
    places.append(("", "tools"))
    return GrammarSpec.json_schema(json_text({"anyOf": calls}, "tools")), places


def _as_resource(
    schema: dict[str, Any] | None, name: str, identifiers: set[str]
) -> tuple[dict[str, Any], str]:
    """The schema as part of another one: with an identifier, so that ``#/...`` goes on to mean itself.

    Gives the path to what the schema says, too: below draft 2019-09 an identifier beside ``$ref`` does not
    count, and neither does anything else, so the reference moves one level down.
    """
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}, ""
    draft = schema.get("$schema")
    draft = draft if isinstance(draft, str) else ""
    old = any(f"/draft-0{number}/" in draft for number in (3, 4, 6, 7))
    key = "id" if "/draft-03/" in draft or "/draft-04/" in draft else "$id"
    if old and "$ref" in schema:
        kept: dict[str, Any] = {
            part: schema[part] for part in ("$schema", "definitions", "$defs") if part in schema
        }
        return {key: name, **kept, "allOf": [{"$ref": schema["$ref"]}]}, ".allOf[0]"
    own = schema.get(key)
    if isinstance(own, str) and not own.startswith("#") and own not in identifiers:
        identifiers.add(own)
        return schema, ""
    return {**schema, key: name}, ""
