"""The fields that constrain an answer, under all the names that clients use for them.

A constraint is enforced or refused, never ignored: names that other servers know and this one does not are
errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field
from pydantic_core import from_json

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.fields import GenerationFields, RequestModel

UNKNOWN_CONSTRAINTS = frozenset(
    {
        "bnf",
        "choice",
        "choices",
        "ebnf",
        "gbnf",
        "grammar_lazy",
        "grammar_triggers",
        "grammars",
        "guidance",
        "json",
        "json_object",
        "lark",
        "lark_grammar",
        "llguidance",
        "response_schema",
        "structural_tag",
        "structured_output",
    }
)
"""Top-level names that ask other servers for a constraint; those that begin with ``guided_`` do so too."""

HARMLESS_GUIDED = frozenset({"guided_decoding_backend"})
"""Begins like a constraint, but only picks an implementation."""


Residual: TypeAlias = Literal["refuse", "verify"]
"""What to do with a constraint that no grammar can hold."""


class ClosedModel(RequestModel):
    """Inside a constraint an unknown member might be one as well: it is an error."""

    model_config = ConfigDict(extra="forbid")


class JsonSchemaFormat(ClosedModel):
    """Member ``json_schema`` of a response format."""

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = Field(
        default=None,
        description="The schema is enforced whatever this says. true: objects that name properties and say "
        "nothing of others take no others, even if the server keeps to the letter of the standard.",
    )
    residual: Residual | None = Field(
        default=None,
        description="What no grammar can hold: check it while the answer grows (the server's default), or "
        "refuse the schema.",
    )


class ResponseFormat(ClosedModel):
    """OpenAI's ``response_format`` and this server's further types; each type has one member of its own."""

    type: Literal["text", "json_object", "json_schema", "regex", "choice", "lark_grammar", "llguidance"]
    json_schema: JsonSchemaFormat | None = None
    schema_: dict[str, Any] | bool | None = Field(
        default=None, alias="schema", description="With json_object: the schema of the object."
    )
    regex: str | None = None
    choice: list[str] | None = Field(default=None, fail_fast=True)
    lark_grammar: str | None = None
    grammar: dict[str, Any] | str | None = Field(
        default=None, description="With llguidance: its serialised grammar."
    )


class StructuredOutputs(ClosedModel):
    """vLLM's ``structured_outputs``: one of these."""

    json_: dict[str, Any] | bool | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(default=None, fail_fast=True)
    grammar: str | None = None
    json_object: bool | None = None


class ConstraintFields(GenerationFields):
    """Every field that may hold a constraint."""

    response_format: ResponseFormat | None = Field(
        default=None, description="What the answer must look like."
    )
    structured_outputs: StructuredOutputs | None = Field(
        default=None, description="Another name for a constraint."
    )
    guided_json: dict[str, Any] | bool | str | None = Field(default=None, description="JSON schema.")
    guided_regex: str | None = Field(default=None, description="Regular expression.")
    guided_choice: list[str] | None = Field(default=None, fail_fast=True, description="One of these texts.")
    guided_grammar: str | None = Field(default=None, description="Lark grammar.")
    json_schema: dict[str, Any] | bool | None = Field(default=None, description="JSON schema.")
    regex: str | None = Field(default=None, description="Regular expression.")
    grammar: str | None = Field(default=None, description="Lark grammar.")


@dataclass(frozen=True, slots=True)
class Constraint:
    """The one constraint of a request.

    Attributes:
        grammar: what the core compiles.
        param: the field that errors name.
        json_schema: the schema, where it is one.
    """

    grammar: GrammarSpec
    param: str
    json_schema: Any = None


Build: TypeAlias = Callable[[Any, str], Constraint]
"""Makes a constraint of a value and the name of its field."""


def resolve_constraint(request: ConstraintFields) -> Constraint | None:
    """The request's constraint under whichever name it came.

    Raises:
        RequestError: it is malformed, or there are two.
    """
    found: list[Constraint] = []
    if request.response_format is not None:
        constraint = _response_format(request.response_format)
        if constraint is not None:
            found.append(constraint)
    outputs = request.structured_outputs
    if outputs is not None:
        before = len(found)
        found += _named(
            "structured_outputs.",
            json=outputs.json_,
            regex=outputs.regex,
            choice=outputs.choice,
            grammar=outputs.grammar,
        )
        if outputs.json_object:
            found.append(Constraint(GrammarSpec.json_object(), "structured_outputs.json_object"))
        if len(found) == before and outputs.json_object is None:
            raise RequestError("structured_outputs holds no constraint.", "structured_outputs")
    found += _named(
        "guided_",
        json=request.guided_json,
        regex=request.guided_regex,
        choice=request.guided_choice,
        grammar=request.guided_grammar,
    )
    found += _named("", json_schema=request.json_schema, regex=request.regex, grammar=request.grammar)
    if len(found) > 1:
        raise RequestError(
            f"{found[1].param} conflicts with {found[0].param}: give one constraint only.", found[1].param
        )
    return found[0] if found else None


def is_unknown_constraint(name: str) -> bool:
    """Whether an unknown top-level field would constrain the answer on another server."""
    return name in UNKNOWN_CONSTRAINTS or (name.startswith("guided_") and name not in HARMLESS_GUIDED)


def _named(prefix: str, **values: Any) -> list[Constraint]:
    build: dict[str, Build] = {
        "json": json_schema,
        "json_schema": json_schema,
        "regex": regex,
        "choice": choice,
        "grammar": lark,
    }
    return [build[name](value, prefix + name) for name, value in values.items() if value is not None]


def _response_format(given: ResponseFormat) -> Constraint | None:
    member = {"llguidance": "grammar", "text": None}.get(given.type, given.type)
    values = {
        "json_schema": given.json_schema,
        "schema": given.schema_,
        "regex": given.regex,
        "choice": given.choice,
        "lark_grammar": given.lark_grammar,
        "grammar": given.grammar,
    }
    if given.type == "json_object":
        member = "schema"
    for name, value in values.items():
        if value is not None and name != member:
            raise RequestError(
                f"response_format.{name} does not belong to the type '{given.type}'.",
                f"response_format.{name}",
            )
    if member is None:
        return None
    value = values[member]
    param = f"response_format.{member}"
    if given.type == "json_object":
        return (
            Constraint(GrammarSpec.json_object(), "response_format")
            if value is None
            else json_schema(value, param)
        )
    if value is None:
        raise RequestError(f"The type '{given.type}' needs {param}.", param)
    if isinstance(value, JsonSchemaFormat):
        if value.schema_ is None:
            return Constraint(GrammarSpec.json_object(), param)
        return json_schema(value.schema_, f"{param}.schema", value.residual, strict=value.strict is True)
    build: dict[str, Build] = {
        "regex": regex,
        "choice": choice,
        "lark_grammar": lark,
        "llguidance": llguidance,
    }
    return build[given.type](value, param)


def json_schema(
    schema: Any, param: str, residual: Residual | None = None, *, strict: bool = False
) -> Constraint:
    """A JSON schema: an object, ``true`` or ``false``, or the JSON text of one.

    ``residual`` wins over what the schema's own ``x-guidance`` says of it. ``strict`` closes objects that
    name properties and say nothing of others.
    """
    if isinstance(schema, str):
        try:
            schema = from_json(schema, allow_inf_nan=False)
        except ValueError as error:
            raise RequestError(f"{param} is not JSON: {error}.", param) from None
        if not isinstance(schema, dict | bool):
            raise RequestError(f"{param} must be a JSON schema: an object, true or false.", param)
    compiled = with_own_options(schema, residual, strict=strict)
    return Constraint(GrammarSpec.json_schema(json_text(compiled, param)), param, schema)


def with_own_options(schema: Any, residual: Residual | None, *, strict: bool) -> Any:
    """The schema with what the request says beside it in its ``x-guidance``, if it says something."""
    own: dict[str, Any] = {}
    if residual is not None:
        own["residual"] = residual
    if strict:
        own["strict"] = True
    if not own or not isinstance(schema, dict):
        return schema
    options = schema.get("x-guidance", {})
    return {**schema, "x-guidance": {**options, **own}} if isinstance(options, dict) else schema


def regex(pattern: str, param: str) -> Constraint:
    """A regular expression that the whole answer matches."""
    if not pattern:
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.regex(pattern), param)


def choice(choices: list[str], param: str) -> Constraint:
    """Exactly one of some texts."""
    if not choices:
        raise RequestError(f"{param} needs at least one text.", param)
    for index, text in enumerate(choices):
        if not text:
            raise RequestError(f"{param}[{index}] is empty.", f"{param}[{index}]")
    return Constraint(GrammarSpec.choice(choices), param)


def lark(grammar: str, param: str) -> Constraint:
    """A Lark grammar in llguidance's dialect."""
    if not grammar.strip():
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.lark(grammar), param)


def llguidance(grammar: dict[str, Any] | str, param: str) -> Constraint:
    """A serialised llguidance grammar: an object, or its JSON text."""
    if isinstance(grammar, dict):
        grammar = json_text(grammar, param)
    elif not grammar.strip():
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.llguidance(grammar), param)


def json_text(value: Any, param: str) -> str:
    """JSON text with the members in the order given. ``1e999`` was read as infinity: it is refused here."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise RequestError(f"{param} holds a number that is out of range.", param) from None
