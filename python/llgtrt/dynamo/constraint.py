"""Dynamo's ``guided_decoding`` as a constraint of the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.constraint import (
    Constraint,
    choice,
    grammar,
    json_schema,
    regex,
    with_whitespace,
)
from llgtrt.serving.protocol.structural_tag import structural_tag
from llgtrt.tools import ControlTokens

_BUILDERS: dict[str, Callable[[Any, str], Constraint]] = {
    "json": json_schema,
    "regex": regex,
    "grammar": grammar,
}


def guided_constraint(guided: dict[str, Any], path: str, control: ControlTokens) -> Constraint | None:
    """The constraint of a request; None for free text.

    Args:
        guided: the members that are not null.
        path: where they stand in the request: errors name it.
        control: the model's control tokens, which structural tags may name.

    Raises:
        RequestError: a member is wrong or not known, or there is more than one constraint.
    """
    # Which library it is to be: there is only one here.
    members = {name: value for name, value in guided.items() if name != "backend"}
    whitespace = members.pop("whitespace_pattern", None)
    if not members:
        if whitespace is not None:
            raise RequestError("whitespace_pattern needs a JSON schema.", f"{path}.whitespace_pattern")
        return None
    name, value = next(iter(members.items()))
    if len(members) > 1:
        second = list(members)[1]
        raise RequestError(f"{quote(second)} conflicts with {quote(name)}: one of them.", f"{path}.{second}")
    param = f"{path}.{name}"
    if name == "choice":
        constraint = choice(_texts(value, param), param)
    elif name == "structural_tag":
        constraint = structural_tag(value, param, control)
    elif name in _BUILDERS:
        constraint = _BUILDERS[name](value, param)
    else:
        raise RequestError(f"{quote(name)} is not a constraint that this worker knows.", param)
    if whitespace is None:
        return constraint
    return with_whitespace(constraint, {"whitespace_pattern": whitespace}, f"{path}.whitespace_pattern")


def _texts(value: Any, param: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise RequestError(f"{param} must be an array of strings.", param)
    return value
