"""The fields that constrain an answer, under all the names that clients use for them.

A constraint is enforced or refused, never ignored: names that other servers know and this one does not are
errors.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from llgtrt.serving.protocol.constraint import Residual, schema_from_text
from llgtrt.serving.protocol.fields import GenerationFields, RequestModel

UNKNOWN_CONSTRAINTS = frozenset(
    {
        "bnf",
        "choice",
        "choices",
        "format",
        "grammar_lazy",
        "grammar_triggers",
        "grammars",
        "guidance",
        "json",
        "json_object",
        "lark",
        "lark_grammar",
        "llguidance",
        "structured_output",
    }
)
"""Top-level names that ask other servers for a constraint; those that begin with ``guided_`` do so too."""

SCHEMA_KEYWORDS = frozenset(
    {"$ref", "$schema", "allOf", "anyOf", "const", "enum", "oneOf", "properties", "type"}
)
"""Where OpenAI's object around a schema is expected, these tell that the schema was put there itself."""

HARMLESS_GUIDED = frozenset({"guided_decoding_backend"})
"""Begins like a constraint, but only picks an implementation."""


def is_unknown_constraint(name: str) -> bool:
    """Whether an unknown top-level field would constrain the answer on another server."""
    return name in UNKNOWN_CONSTRAINTS or (name.startswith("guided_") and name not in HARMLESS_GUIDED)


class ClosedModel(RequestModel):
    """Inside a constraint an unknown member might be one as well: it is an error, unless it is null."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """Clients that write an object out with all its members write null for those that are not set."""
        if not isinstance(value, dict) or None not in value.values():
            return value
        return {name: member for name, member in value.items() if member is not None}


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

    type: Literal[
        "text",
        "json_object",
        "json_schema",
        "regex",
        "choice",
        "lark_grammar",
        "llguidance",
        "json",
        "grammar",
        "ebnf",
        "structural_tag",
    ]
    json_schema: JsonSchemaFormat | None = Field(
        default=None, description="An object that holds the schema in `schema`; or its JSON text."
    )
    schema_: dict[str, Any] | bool | None = Field(
        default=None, alias="schema", description="With json_object, json_schema and json: the schema."
    )
    response_schema: dict[str, Any] | bool | str | None = Field(
        default=None, description="With json_object: LiteLLM's name of the schema."
    )
    regex: str | None = None
    choice: list[str] | None = Field(default=None, fail_fast=True)
    lark_grammar: str | None = None
    grammar: dict[str, Any] | str | None = Field(
        default=None, description="With llguidance: its serialised grammar. With grammar: Lark or GBNF."
    )
    ebnf: str | None = Field(default=None, description="With ebnf: GBNF.")
    format: dict[str, Any] | None = Field(
        default=None,
        description="With structural_tag: xgrammar's format of the text and of the tags in it.",
    )
    structures: list[Any] | None = Field(
        default=None,
        description="With structural_tag, in its older form: objects with begin, schema and end.",
    )
    triggers: list[str] | None = Field(
        default=None, fail_fast=True, description="With structures: the texts that begin them."
    )
    value: dict[str, Any] | bool | str | None = Field(
        default=None, description="With json: the schema; with regex: the expression."
    )

    @field_validator("json_schema", mode="before")
    @classmethod
    def _schema_as_text_or_bare(cls, value: Any) -> Any:
        """Some servers take JSON texts for the object or the schema in it; a schema without the object around
        it is a mistake."""
        if isinstance(value, str):
            parsed = schema_from_text(value, "response_format.json_schema")
            is_object = (
                isinstance(parsed, dict) and "schema" in parsed and not SCHEMA_KEYWORDS & parsed.keys()
            )
            value = parsed if is_object else {"schema": parsed}
        if isinstance(value, dict) and isinstance(text := value.get("schema"), str):
            value = {**value, "schema": schema_from_text(text, "response_format.json_schema.schema")}
        if isinstance(value, dict) and "schema" not in value and SCHEMA_KEYWORDS & value.keys():
            raise PydanticCustomError(
                "bare_schema", 'holds a schema itself: put it into a member "schema", {"schema": {...}}'
            )
        return value


class StructuredOutputs(ClosedModel):
    """vLLM's ``structured_outputs``: one constraint, and how to write JSON."""

    json_: dict[str, Any] | bool | str | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(default=None, fail_fast=True)
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = Field(
        default=None, description="xgrammar's structural tag, or its JSON text."
    )
    whitespace_pattern: str | None = Field(
        default=None, description="Regular expression of the whitespace in JSON."
    )
    disable_any_whitespace: bool | None = Field(default=None, description="JSON without whitespace.")
    disable_additional_properties: bool | None = Field(
        default=None,
        description="Objects that name properties and say nothing of others take no others, even if the "
        "server keeps to the letter of the standard.",
    )
    disable_fallback: bool | None = Field(default=None, description="Accepted: there is nothing to fall to.")


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
    guided_grammar: str | None = Field(default=None, description="Grammar in Lark or GBNF.")
    guided_whitespace_pattern: str | None = Field(
        default=None, description="Regular expression of the whitespace in JSON."
    )
    json_schema: dict[str, Any] | bool | None = Field(default=None, description="JSON schema.")
    regex: str | None = Field(default=None, description="Regular expression.")
    grammar: str | None = Field(default=None, description="Grammar in Lark or GBNF.")
    ebnf: str | None = Field(default=None, description="Grammar in GBNF.")
    gbnf: str | None = Field(default=None, description="Grammar in GBNF.")
    response_schema: dict[str, Any] | bool | str | None = Field(default=None, description="JSON schema.")
    structural_tag: dict[str, Any] | str | None = Field(
        default=None, description="xgrammar's structural tag, or its JSON text."
    )
