"""How the values of arguments are written that stand between tags, or in a call of Python's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from llgtrt.tools.arguments import UnsupportedSchemaError

MAX_DEPTH = 4
"""How deep lists and objects are written between tags; what is deeper is JSON."""

MAX_NESTED = 256
"""Members of objects between tags, of one tool."""

MAX_ITEMS = 1000
"""Bounds of lists between tags; a list with greater ones is JSON."""

_ANNOTATIONS = frozenset(
    {
        "$comment",
        "$schema",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
        "x-guidance",
    }
)
_ROOT = _ANNOTATIONS | {
    "$defs",
    "additionalProperties",
    "definitions",
    "properties",
    "required",
    "type",
    "$id",
}
UNSAFE = frozenset('<>"=\\ \n\r\t')
"""Characters that a name between tags cannot hold."""

_OBJECT = {"type", "properties", "required", "additionalProperties"}
_LIST = {"type", "items", "minItems", "maxItems"}


@dataclass(frozen=True)
class PairTexts:
    """The texts around names and values.

    Attributes:
        begin: what comes before a value, with ``{key}`` in place of its name.
        end: what comes behind it, with ``{key}`` as well.
        join: what stands between two pairs.
        raw_strings: plain strings are not quoted.
        python: single booleans are those of Python.
        quotes: what may stand around a plain string, such as those of a CDATA block.
        item: what the items of a list are called, where lists and objects are written between tags too.
    """

    begin: str
    end: str
    join: str = ""
    raw_strings: bool = True
    python: bool = False
    quotes: tuple[str, str] | None = None
    item: str = ""

    def around(self, key: str) -> tuple[str, str]:
        """What comes before and behind the value of a name."""
        return self.begin.replace("{key}", key), self.end.replace("{key}", key)


@dataclass(frozen=True)
class Kind:
    """How a value is written.

    Attributes:
        raw: as it is, to become a JSON string.
        choices: exactly one of these texts.
        schema: the schema of a value that is written as JSON.
        members: of an object between tags, each with whether it must be there.
        items: of a list between tags.
        least, most: how many of them.
    """

    raw: bool = False
    choices: list[str] | None = None
    schema: Any = None
    members: dict[str, tuple[Kind, bool]] = field(default_factory=dict)
    items: Kind | None = None
    least: int = 0
    most: int | None = None

    @property
    def nested(self) -> bool:
        """Whether there are further tags in it."""
        return bool(self.members) or self.items is not None


def kinds_of(texts: PairTexts, properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Kind]:
    """How the values of a tool's arguments are written, by name."""
    kinds = _Kinds(texts, definitions)
    return {key: kinds.of(key, one, 0) for key, one in properties.items()}


@dataclass
class _Kinds:
    """Finds the kinds of one tool's values.

    Attributes:
        left: how many more values may stand between tags within others: references can make them many.
    """

    texts: PairTexts
    definitions: dict[str, Any]
    left: int = MAX_NESTED

    def of(self, key: str, schema: Any, depth: int) -> Kind:
        """How the value of a property, or of a list's item, is written."""
        texts = self.texts
        if not isinstance(schema, dict):
            return Kind(schema=schema)
        if texts.item and depth < MAX_DEPTH:
            nested = self._nested(key, schema, depth)
            if nested is not None:
                return nested
        said = schema.keys() - _ANNOTATIONS
        if texts.python and said == {"type"} and schema["type"] == "boolean":
            return Kind(choices=["True", "False"])
        if texts.raw_strings and said == {"type"} and schema["type"] == "string":
            return Kind(raw=True)
        values = schema.get("enum")
        if (
            texts.raw_strings
            and said <= {"type", "enum"}
            and schema.get("type", "string") == "string"
            and isinstance(values, list)
            and values
            and all(isinstance(value, str) and value and _is_plain(texts, key, value) for value in values)
        ):
            return Kind(raw=True, choices=values)
        return Kind(schema={**self.definitions, **schema})

    def _nested(self, key: str, schema: dict[str, Any], depth: int) -> Kind | None:
        """An object or a list between tags, if the schema says no more of it than such can hold."""
        said = schema.keys() - _ANNOTATIONS
        if said == {"$ref"}:
            inner = _resolved(schema["$ref"], self.definitions)
            return None if inner is None else self.of(key, inner, depth + 1)
        if schema.get("type") == "object" and said <= _OBJECT and not schema.get("additionalProperties"):
            properties, required = schema.get("properties"), schema.get("required", [])
            if not isinstance(properties, dict) or not properties or not isinstance(required, list):
                return None
            if not all(name in properties for name in required) or not all(map(is_safe, properties)):
                return None
            self.left -= len(properties)
            if self.left < 0:
                return None
            members = {
                name: (self.of(name, one, depth + 1), name in required) for name, one in properties.items()
            }
            return Kind(members=members)
        if schema.get("type") == "array" and said <= _LIST and isinstance(schema.get("items"), dict):
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            if not all(map(_is_count, (least, least if most is None else most))):
                return None
            if most is not None and most < least:
                return None
            items = self.of(self.texts.item, schema["items"], depth + 1)
            return Kind(items=items, least=least, most=most)
        return None


def is_safe(name: str) -> bool:
    """Whether a name can stand in a tag."""
    return bool(name) and not UNSAFE & set(name)


def _is_count(bound: Any) -> bool:
    return isinstance(bound, int) and not isinstance(bound, bool) and 0 <= bound <= MAX_ITEMS


def _is_plain(texts: PairTexts, key: str, value: str) -> bool:
    """Whether a text can be written without quotes."""
    is_quoted = texts.quotes is not None and value.startswith(texts.quotes[0])
    return not is_quoted and texts.around(key)[1] not in value


def _resolved(reference: Any, definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The schema that a reference to a definition means."""
    parts = str(reference).split("/")
    table = definitions.get(parts[1]) if len(parts) == 3 and parts[0] == "#" else None
    inner = table.get(parts[2]) if isinstance(table, dict) else None
    return inner if isinstance(inner, dict) else None


def object_of(schema: Any, param: str) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
    """Properties, names of those that must be there, and definitions that they may refer to.

    Raises:
        UnsupportedSchemaError: the schema says more of the arguments than can be written.
    """
    definitions = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    seen = 0
    while "$ref" in schema and seen < 16:
        seen += 1
        inner = _resolved(schema["$ref"], definitions)
        if inner is None:
            raise UnsupportedSchemaError("the model's call format needs the properties here", f"{param}.$ref")
        schema = inner
    for keyword in schema:
        if keyword not in _ROOT:
            message = "the model's call format cannot hold this keyword for all arguments together"
            raise UnsupportedSchemaError(message, f"{param}.{keyword}")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict):
        raise UnsupportedSchemaError("must be an object", f"{param}.properties")
    if not isinstance(required, list):
        raise UnsupportedSchemaError("must be an array", f"{param}.required")
    for key in required:
        if key not in properties:
            raise UnsupportedSchemaError(
                "the model's call format needs a schema for each required property", f"{param}.required"
            )
    return properties, set(required), definitions
