"""Random configurations, built from the models' own types and ranges."""

import types
import typing
from typing import Any

from hypothesis import strategies as st
from pydantic import JsonValue
from pydantic.fields import FieldInfo

from llgtrt.config.section import Section

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["// no comment", "a\nb", '"quoted"', "\u2028", "<｜begin▁of▁sentence｜>", "{% for %}", "\\", "\x7f"]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)


def raw_section(kind: type[Section]) -> st.SearchStrategy[dict[str, Any]]:
    """A raw section in which some of the options are set."""
    fields = kind.model_fields.items()
    return st.fixed_dictionaries(
        {name: _value(field.annotation, field) for name, field in fields if field.is_required()},
        optional={name: _value(field.annotation, field) for name, field in fields if not field.is_required()},
    )


def _value(kind: Any, field: FieldInfo) -> st.SearchStrategy[Any]:
    if kind is JsonValue:
        return _JSON
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _value(arguments[0], FieldInfo.from_annotation(kind))
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_value(option, field) for option in arguments])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is list:
        sizes = [getattr(constraint, "min_length", 0) for constraint in field.metadata]
        items = _value(arguments[0], FieldInfo(annotation=arguments[0]))
        return st.lists(items, min_size=max(sizes, default=0), max_size=3)
    if origin is dict:
        items = _value(arguments[1], FieldInfo(annotation=arguments[1]))
        return st.dictionaries(_TEXT, items, max_size=3)
    if isinstance(kind, type) and issubclass(kind, Section):
        return raw_section(kind)
    low, high = _bounds(field)
    below = any(getattr(constraint, "lt", None) is not None for constraint in field.metadata)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(-(2**31) if low is None else low, 2**31 - 1 if high is None else high - below)
    if kind is float:
        return st.floats(low or 0.001, high or 1e9, exclude_max=below, allow_nan=False, allow_infinity=False)
    if kind is str:
        # Examples are for options that not every text is a value of.
        return st.sampled_from(field.examples) if field.examples else _TEXT
    if kind is type(None):
        return st.none()
    raise AssertionError(f"no strategy for {kind}")


def _bounds(field: FieldInfo) -> tuple[Any, Any]:
    low = high = None
    for constraint in field.metadata:
        low = getattr(constraint, "ge", getattr(constraint, "gt", None)) if low is None else low
        high = getattr(constraint, "le", getattr(constraint, "lt", None)) if high is None else high
    return low, high
