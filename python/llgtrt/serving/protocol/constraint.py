"""The fields that constrain an answer, under all the names that clients use for them.

A constraint is enforced or refused, never ignored: names that other servers know and this one does not are
errors.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError, from_json

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.fields import GenerationFields, RequestModel
from llgtrt.serving.protocol.gbnf import GbnfError, gbnf_to_lark, is_gbnf

UNKNOWN_CONSTRAINTS = frozenset(
    {
        "bnf",
        "choice",
        "choices",
        "grammar_lazy",
        "grammar_triggers",
        "grammars",
        "guidance",
        "json",
        "json_object",
        "lark",
        "lark_grammar",
        "llguidance",
        "structural_tag",
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


Residual: TypeAlias = Literal["refuse", "verify"]
"""What to do with a constraint that no grammar can hold."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The one constraint of a request.

    Attributes:
        grammar: what the core compiles.
        param: the field that errors name.
        source: the grammar's own text, by which two are compared.
        json_schema: the schema, where it is one.
        places: of a grammar that was put together, prefixes of paths in it and the fields that they are.
    """

    grammar: GrammarSpec
    param: str
    source: str = ""
    json_schema: Any = None
    places: tuple[tuple[str, str], ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constraint):
            return NotImplemented
        return (self.grammar.kind, self.source) == (other.grammar.kind, other.source)

    __hash__ = None  # type: ignore[assignment]

    def implies(self, other: Constraint) -> bool:
        """Whether every answer under this one satisfies the other as well, as far as can be said at once."""
        if self == other:
            return True
        is_object = isinstance(self.json_schema, dict) and self.json_schema.get("type") == "object"
        return other.grammar.kind == "json_object" and is_object


Build: TypeAlias = Callable[[Any, str], Constraint]
"""Makes a constraint of a value and the name of its field."""


def resolve_constraint(request: ConstraintFields) -> Constraint | None:
    """The request's constraint under whichever name it came. The same one may come under several.

    Raises:
        RequestError: it is malformed, or there are two that differ.
    """
    found: Constraint | None = None
    for constraint in _constraints(request):
        if found is None:
            found = constraint
        elif found.implies(constraint):
            continue
        elif constraint.implies(found):
            found = constraint
        else:
            raise RequestError(
                f"{constraint.param} conflicts with {found.param}: give one constraint only.",
                constraint.param,
            )
    return found


def _constraints(request: ConstraintFields) -> Iterator[Constraint]:
    """Every constraint of a request, with the whitespace that it asks for."""
    whitespace: dict[str, Any] = {}
    param = ""
    outputs = request.structured_outputs
    if request.guided_whitespace_pattern is not None:
        param, whitespace = (
            "guided_whitespace_pattern",
            {"whitespace_pattern": request.guided_whitespace_pattern},
        )
    if outputs is not None and outputs.whitespace_pattern is not None:
        param = "structured_outputs.whitespace_pattern"
        whitespace = {"whitespace_pattern": outputs.whitespace_pattern}
    if outputs is not None and outputs.disable_any_whitespace:
        param, whitespace = "structured_outputs.disable_any_whitespace", {"whitespace_flexible": False}
    for constraint in _plain_constraints(request):
        yield with_whitespace(constraint, whitespace, param) if whitespace else constraint


def with_whitespace(constraint: Constraint, options: dict[str, Any], param: str) -> Constraint:
    """The constraint with options on whitespace, which the field ``param`` asks for.

    Raises:
        RequestError: it is no JSON schema.
    """
    if constraint.grammar.kind not in ("json_schema", "json_object"):
        raise RequestError(f"{param} needs a JSON schema.", param)
    # With the options that the request gave it already.
    schema = from_json(constraint.source) if constraint.source else {"type": "object"}
    if schema is False:
        return constraint
    # What the schema says itself wins.
    own = {} if schema is True else schema.get("x-guidance")
    guidance = {**options, **own} if isinstance(own, dict) else options if own is None else own
    text = json_text({**({} if schema is True else schema), "x-guidance": guidance}, constraint.param)
    return Constraint(GrammarSpec.json_schema(text), constraint.param, text, constraint.json_schema)


def _plain_constraints(request: ConstraintFields) -> Iterator[Constraint]:
    if request.response_format is not None:
        constraint = _response_format(request.response_format)
        if constraint is not None:
            yield constraint
    outputs = request.structured_outputs
    if outputs is not None:
        named = [] if outputs.json_ is None else [_schema_of(outputs, outputs.json_)]
        named += _named(
            "structured_outputs.",
            regex=outputs.regex,
            choice=outputs.choice,
            grammar=outputs.grammar,
        )
        yield from named
        if outputs.json_object:
            yield json_object("structured_outputs.json_object")
        elif not named and outputs.json_object is None:
            raise RequestError("structured_outputs holds no constraint.", "structured_outputs")
    yield from _named(
        "guided_",
        json=request.guided_json,
        regex=request.guided_regex,
        choice=request.guided_choice,
        grammar=request.guided_grammar,
    )
    yield from _named(
        "",
        json_schema=request.json_schema,
        response_schema=request.response_schema,
        regex=request.regex,
        grammar=request.grammar,
        ebnf=request.ebnf,
        gbnf=request.gbnf,
    )


def _schema_of(outputs: StructuredOutputs, schema: Any) -> Constraint:
    return json_schema(schema, "structured_outputs.json", strict=bool(outputs.disable_additional_properties))


def is_unknown_constraint(name: str) -> bool:
    """Whether an unknown top-level field would constrain the answer on another server."""
    return name in UNKNOWN_CONSTRAINTS or (name.startswith("guided_") and name not in HARMLESS_GUIDED)


def _named(prefix: str, **values: Any) -> list[Constraint]:
    build: dict[str, Build] = {
        "json": json_schema,
        "json_schema": json_schema,
        "response_schema": json_schema,
        "regex": regex,
        "choice": choice,
        "grammar": grammar,
        "ebnf": gbnf,
        "gbnf": gbnf,
    }
    return [build[name](value, prefix + name) for name, value in values.items() if value is not None]


FORMAT_MEMBERS: dict[str, tuple[str, ...]] = {
    "text": (),
    "json_object": ("schema", "response_schema"),
    "json_schema": ("json_schema", "schema"),
    "regex": ("regex", "value"),
    "choice": ("choice",),
    "lark_grammar": ("lark_grammar",),
    "llguidance": ("grammar",),
    "json": ("value", "schema"),
    "grammar": ("grammar",),
    "ebnf": ("ebnf",),
}
"""The members of ``response_format`` that may hold the constraint, by type; the first is named if none is."""


def _response_format(given: ResponseFormat) -> Constraint | None:
    values = {
        "json_schema": given.json_schema,
        "schema": given.schema_,
        "response_schema": given.response_schema,
        "regex": given.regex,
        "choice": given.choice,
        "lark_grammar": given.lark_grammar,
        "grammar": given.grammar,
        "ebnf": given.ebnf,
        "value": given.value,
    }
    members = FORMAT_MEMBERS[given.type]
    found = [name for name, value in values.items() if value is not None]
    for name in found:
        if name not in members:
            raise RequestError(
                f"response_format.{name} does not belong to the type '{given.type}'.",
                f"response_format.{name}",
            )
    if len(found) > 1:
        raise RequestError(
            f"response_format.{found[1]} conflicts with response_format.{found[0]}: give one of them.",
            f"response_format.{found[1]}",
        )
    if given.type == "text":
        return None
    if not found:
        if given.type == "json_object":
            return json_object("response_format")
        param = f"response_format.{members[0]}"
        raise RequestError(f"The type '{given.type}' needs {param}.", param)
    value, param = values[found[0]], f"response_format.{found[0]}"
    if isinstance(value, JsonSchemaFormat):
        if value.schema_ is None:
            return json_object(param)
        return json_schema(value.schema_, f"{param}.schema", value.residual, strict=value.strict is True)
    build: dict[str, Build] = {
        "json_object": json_schema,
        "json_schema": json_schema,
        "json": json_schema,
        "regex": regex,
        "choice": choice,
        "lark_grammar": lark,
        "llguidance": llguidance,
        "grammar": grammar,
        "ebnf": gbnf,
    }
    return build[given.type](value, param)


def json_object(param: str) -> Constraint:
    """Any JSON object."""
    return Constraint(GrammarSpec.json_object(), param)


def schema_from_text(text: str, param: str) -> Any:
    """The JSON schema that a text holds."""
    try:
        schema = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"{param} is not JSON: {error}.", param) from None
    if not isinstance(schema, dict | bool):
        raise RequestError(f"{param} must be a JSON schema: an object, true or false.", param)
    return schema


def json_schema(
    schema: Any, param: str, residual: Residual | None = None, *, strict: bool = False
) -> Constraint:
    """A JSON schema: an object, ``true`` or ``false``, or the JSON text of one.

    ``residual`` wins over what the schema's own ``x-guidance`` says of it. ``strict`` closes objects that
    name properties and say nothing of others.
    """
    if isinstance(schema, str):
        schema = schema_from_text(schema, param)
    text = json_text(with_own_options(schema, residual, strict=strict), param)
    return Constraint(GrammarSpec.json_schema(text), param, text, schema)


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


def regex(pattern: Any, param: str) -> Constraint:
    """A regular expression that the whole answer matches."""
    if not isinstance(pattern, str):
        raise RequestError(f"{param} must be a regular expression.", param)
    if not pattern:
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.regex(pattern), param, pattern)


def choice(choices: list[str], param: str) -> Constraint:
    """Exactly one of some texts."""
    if not choices:
        raise RequestError(f"{param} needs at least one text.", param)
    for index, text in enumerate(choices):
        if not text:
            raise RequestError(f"{param}[{index}] is empty.", f"{param}[{index}]")
    return Constraint(GrammarSpec.choice(choices), param, json_text(choices, param))


def grammar(text: Any, param: str) -> Constraint:
    """A grammar in Lark or, known by its ``::=``, in GBNF."""
    if isinstance(text, str) and is_gbnf(text):
        return gbnf(text, param)
    return lark(text, param)


def lark(text: Any, param: str) -> Constraint:
    """A Lark grammar in llguidance's dialect."""
    if not isinstance(text, str):
        raise RequestError(f"{param} must be the text of a grammar.", param)
    if not text.strip():
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.lark(text), param, text)


def gbnf(text: str, param: str) -> Constraint:
    """A grammar in GBNF, the dialect of llama.cpp, or in the EBNF of xgrammar: nearly the same."""
    return lark(gbnf_text(text, param), param)


def gbnf_text(text: str, param: str) -> str:
    """A grammar in GBNF as one in Lark.

    Raises:
        RequestError: it cannot be read.
    """
    if not text.strip():
        raise RequestError(f"{param} is empty.", param)
    try:
        return gbnf_to_lark(text)
    except GbnfError as error:
        raise RequestError(f"{param} is not GBNF that can be read: {error}.", param) from None


def llguidance(grammar: dict[str, Any] | str, param: str) -> Constraint:
    """A serialised llguidance grammar: an object, or its JSON text."""
    if isinstance(grammar, dict):
        grammar = json_text(grammar, param)
    elif not grammar.strip():
        raise RequestError(f"{param} is empty.", param)
    return Constraint(GrammarSpec.llguidance(grammar), param, grammar)


def json_text(value: Any, param: str) -> str:
    """JSON text with the members in the order given. ``1e999`` was read as infinity: it is refused here."""
    try:
        return _encoder().encode(value)
    except ValueError:
        raise RequestError(f"{param} holds a number that is out of range.", param) from None


class _PatientEncoder(json.JSONEncoder):
    """The standard encoder without its native part, which holds the interpreter's lock for a whole value."""

    def encode(self, o: Any) -> str:
        return "".join(self.iterencode(o))


_OPTIONS: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
_ENCODER = json.JSONEncoder(**_OPTIONS)
_PATIENT_ENCODER = _PatientEncoder(**_OPTIONS)


def _encoder() -> json.JSONEncoder:
    """On the event loop values are small; what comes to another thread is large and must let others run."""
    on_loop = threading.current_thread() is threading.main_thread()
    return _ENCODER if on_loop else _PATIENT_ENCODER
