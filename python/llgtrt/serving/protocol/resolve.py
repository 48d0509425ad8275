"""The one constraint of a request, under whichever of its names it came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.allowed_tokens import allowed_tokens
from llgtrt.serving.protocol.constraint import (
    Constraint,
    choice,
    gbnf,
    grammar,
    json_object,
    json_schema,
    lark,
    llguidance,
    regex,
    with_whitespace,
)
from llgtrt.serving.protocol.constraint_fields import (
    ConstraintFields,
    JsonSchemaFormat,
    ResponseFormat,
    StructuredOutputs,
)
from llgtrt.serving.protocol.structural_tag import structural_tag
from llgtrt.tools import ControlTokens

Build: TypeAlias = Callable[[Any, str], Constraint]
"""Makes a constraint of a value and the name of its field."""


def resolve_constraint(request: ConstraintFields, control: ControlTokens) -> Constraint | None:
    """The request's constraint under whichever name it came. The same one may come under several.

    Args:
        request: the request.
        control: the model's control tokens, which structural tags may name.

    Raises:
        RequestError: it is malformed, or there are two that differ.
    """
    found: Constraint | None = None
    for constraint in _constraints(request, control):
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


def _constraints(request: ConstraintFields, control: ControlTokens) -> Iterator[Constraint]:
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
    for constraint in _plain_constraints(request, control):
        yield with_whitespace(constraint, whitespace, param) if whitespace else constraint


def _plain_constraints(request: ConstraintFields, control: ControlTokens) -> Iterator[Constraint]:
    if request.response_format is not None:
        constraint = _response_format(request.response_format, control)
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
        if outputs.structural_tag is not None:
            param = "structured_outputs.structural_tag"
            named.append(structural_tag(outputs.structural_tag, param, control))
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
    if request.allowed_token_ids:
        yield allowed_tokens(request.allowed_token_ids, control)
    if request.structural_tag is not None:
        yield structural_tag(request.structural_tag, "structural_tag", control)


def _schema_of(outputs: StructuredOutputs, schema: Any) -> Constraint:
    return json_schema(schema, "structured_outputs.json", strict=bool(outputs.disable_additional_properties))


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
    "structural_tag": ("format", "structures", "triggers"),
}
"""The members of ``response_format`` that may hold the constraint, by type; the first is named if none is."""


def _response_format(given: ResponseFormat, control: ControlTokens) -> Constraint | None:
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
        "format": given.format,
        "structures": given.structures,
        "triggers": given.triggers,
    }
    members = FORMAT_MEMBERS[given.type]
    found = [name for name, value in values.items() if value is not None]
    for name in found:
        if name not in members:
            raise RequestError(
                f"response_format.{name} does not belong to the type '{given.type}'.",
                f"response_format.{name}",
            )
    if given.type == "structural_tag":
        return structural_tag({name: values[name] for name in found}, "response_format", control)
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
