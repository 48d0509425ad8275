"""A constraint on an answer: what the core compiles, and the ways to write one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from llgtrt.engine import GrammarSpec
from llgtrt.patient_json import json_of, parse_json
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.gbnf import GbnfError, gbnf_to_lark, is_gbnf
from llgtrt.tools import Part

Residual: TypeAlias = Literal["refuse", "verify"]
"""What to do with a constraint that no grammar can hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """The one constraint of a request.

    Attributes:
        grammar: what the core compiles.
        param: the field that errors name.
        source: the grammar's own text, by which two are compared.
        json_schema: the schema, where it is one.
        parts: of a grammar that was put together, the further entries of its list.
        places: of such a one, prefixes of paths in it and the fields that they are.
        of_tokens: it names tokens: at its limit the answer is cut, as any of its beginnings is as good.
        ends: whether the model may end the answer where the grammar allows it.
    """

    grammar: GrammarSpec
    param: str
    source: str = ""
    json_schema: Any = None
    parts: tuple[Part, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    of_tokens: bool = False
    ends: bool = True

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


def with_whitespace(constraint: Constraint, options: dict[str, Any], param: str) -> Constraint:
    """The constraint with options on whitespace, which the field ``param`` asks for.

    Raises:
        RequestError: it is no JSON schema.
    """
    if constraint.grammar.kind not in ("json_schema", "json_object"):
        raise RequestError(f"{param} needs a JSON schema.", param)
    # With the options that the request gave it already.
    schema = parse_json(constraint.source) if constraint.source else {"type": "object"}
    if schema is False:
        return constraint
    # What the schema says itself wins.
    own = {} if schema is True else schema.get("x-guidance")
    guidance = {**options, **own} if isinstance(own, dict) else options if own is None else own
    text = json_text({**({} if schema is True else schema), "x-guidance": guidance}, constraint.param)
    return Constraint(GrammarSpec.json_schema(text), constraint.param, text, constraint.json_schema)


def json_object(param: str) -> Constraint:
    """Any JSON object."""
    return Constraint(GrammarSpec.json_object(), param)


def schema_from_text(text: str, param: str) -> Any:
    """The JSON schema that a text holds."""
    try:
        schema = parse_json(text)
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
        return json_of(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise RequestError(f"{param} holds a number that is out of range.", param) from None
