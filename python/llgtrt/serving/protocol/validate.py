"""The body of ``POST /v1/grammar/validate``, and the grammar that it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.constraint import Residual, json_text
from llgtrt.serving.protocol.constraint_fields import ClosedModel
from llgtrt.serving.protocol.tools import ToolDefinition, tools_grammar

WRAPPER_MEMBERS = frozenset({"name", "description", "schema", "strict", "residual"})
"""Members of OpenAI's ``json_schema``, which holds the schema."""


class ValidateRequest(ClosedModel):
    """A grammar under exactly one name, and instances to try on it."""

    model: str | None = Field(
        default=None, description="Name of the model whose tokens count; the served one if left out."
    )
    json_schema: dict[str, Any] | bool | None = Field(
        default=None, description="A JSON schema, or OpenAI's object around one: name, schema, strict."
    )
    regex: str | None = Field(default=None, description="Regular expression.")
    choice: list[str] | None = Field(default=None, fail_fast=True, description="One of these texts.")
    lark: str | None = Field(default=None, description="Lark grammar in llguidance's dialect.")
    llguidance: dict[str, Any] | str | None = Field(
        default=None, description="A serialised llguidance grammar: an object, its JSON text, or Lark."
    )
    tools: list[ToolDefinition] | None = Field(
        default=None, description="OpenAI's tool definitions: the grammar of one call of one of them."
    )
    instances: list[Any] | None = Field(
        default=None,
        description="What to try: JSON values, in any order of their keys, or strings: the text of an "
        "answer, or, under a JSON schema, a JSON string.",
    )
    residual: Residual | None = Field(
        default=None,
        description="What no grammar can hold: 'refuse' it, or name it for a check of the answer ('verify'). "
        "Without it the server's configuration counts, as for a request.",
    )


@dataclass(frozen=True, slots=True)
class GrammarQuestion:
    """What the core is asked.

    Attributes:
        grammar: the grammar.
        places: prefixes of paths in it, and what they are in the request; the first that fits counts.
        residual: what to do with what no grammar can hold; None: what the server is configured for.
    """

    grammar: GrammarSpec
    places: list[tuple[str, str]]
    residual: Residual | None = None


def resolve_question(request: ValidateRequest) -> GrammarQuestion:
    """The grammar of a request.

    Raises:
        RequestError: there is none, or more than one.
    """
    kinds = ("json_schema", "regex", "choice", "lark", "llguidance", "tools")
    given = [kind for kind in kinds if getattr(request, kind) is not None]
    if not given:
        raise RequestError(f"Give one grammar: {', '.join(kinds[:-1])} or {kinds[-1]}.", kinds[0])
    if len(given) > 1:
        raise RequestError(f"{given[1]} conflicts with {given[0]}: give one grammar only.", given[1])
    if request.json_schema is not None:
        return schema_question(request.json_schema, "json_schema", request.residual)
    residual = request.residual
    if request.tools is not None:
        return GrammarQuestion(*tools_grammar(request.tools), residual)
    kind = given[0]
    value = getattr(request, kind)
    if isinstance(value, dict):
        value = json_text(value, kind)
    build: Callable[[Any], GrammarSpec] = getattr(GrammarSpec, kind)
    return GrammarQuestion(build(value), [("", kind)], residual)


def inner_schema(schema: Any) -> Any:
    """The schema itself, which may stand in OpenAI's object."""
    if isinstance(schema, dict) and "schema" in schema and schema.keys() <= WRAPPER_MEMBERS:
        return schema["schema"]
    return schema


def schema_question(schema: Any, name: str, residual: Residual | None = None) -> GrammarQuestion:
    """A schema, or OpenAI's object around one. ``name`` is what paths begin with; it may be empty.

    Raises:
        RequestError: a number is out of range, or the object's ``residual`` is unknown.
    """
    if isinstance(schema, dict) and "schema" in schema and schema.keys() <= WRAPPER_MEMBERS:
        inner = schema.get("residual")
        schema = schema["schema"]
        if inner not in (None, "refuse", "verify"):
            param = f"{name}.residual" if name else "residual"
            raise RequestError(f"{param}: must be 'refuse' or 'verify'.", param)
        residual = residual or inner
        name = f"{name}.schema" if name else "schema"
    return GrammarQuestion(GrammarSpec.json_schema(json_text(schema, name)), [("", name)], residual)


def instance_texts(instances: list[Any] | None) -> list[str]:
    """The JSON text of each instance.

    Raises:
        RequestError: a number is out of range.
    """
    return [json_text(instance, f"instances[{index}]") for index, instance in enumerate(instances or [])]
