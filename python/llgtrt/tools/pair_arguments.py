"""Arguments as a list of names and values, between tags or as in a call of Python's.

Only the properties that a schema lists are written, in its order. A plain string is written as it is; every
other value as JSON. A schema that says more of the object as a whole cannot be written so and is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from llgtrt.tools.arguments import ArgumentStyle, RuleWriter, UnsupportedSchemaError
from llgtrt.tools.markup import TEXT, Markup, overlap, pattern, quoted

NO_CONTROL = Markup({})

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
_UNSAFE = frozenset('<>"=\\ \n\r\t')


@dataclass(frozen=True)
class PairSyntax:
    """The texts around names and values.

    Attributes:
        begin: what comes before a value, with ``{key}`` in place of its name.
        end: what comes behind it, with ``{key}`` as well.
        join: what stands between two pairs.
        raw_strings: plain strings are not quoted.
        python: single booleans are those of Python.
        quotes: what may stand around a plain string, such as those of a CDATA block.
    """

    begin: str
    end: str
    join: str = ""
    raw_strings: bool = True
    python: bool = False
    quotes: tuple[str, str] | None = None

    def style(self, markup: Markup = NO_CONTROL) -> ArgumentStyle:
        """The style with these texts, for a model with some control tokens."""
        texts = (self.begin, self.end, self.join, *(self.quotes or ()))
        return ArgumentStyle(partial(self._grammar, markup), partial(self._reader, markup), texts, self.style)

    def around(self, key: str) -> tuple[str, str]:
        """What comes before and behind the value of a name."""
        return self.begin.replace("{key}", key), self.end.replace("{key}", key)

    def _reader(self, markup: Markup, schema: Any) -> PairReader:
        properties, _required, definitions = _object(schema, "")
        kinds = {key: _kind(self, key, one, definitions) for key, one in properties.items()}
        return PairReader(self, markup, kinds)

    def _grammar(self, markup: Markup, rules: RuleWriter, schema: Any, prefix: str, param: str) -> str:
        properties, required, definitions = _object(schema, param)
        pairs = []
        for number, (key, one) in enumerate(properties.items()):
            at = f"{param}.properties.{key}"
            if not key or _UNSAFE & set(key):
                raise UnsupportedSchemaError("the model's call format cannot write this name", at)
            name = f"{prefix}_{number}"
            kind = _kind(self, key, one, definitions)
            before, behind = self.around(key)
            begin = markup.lark(before)
            end = markup.lark(behind) if behind else ""
            if kind.raw and kind.choices is None:
                value, end = self._raw(markup, rules, name, behind), ""
            elif kind.choices is not None:
                value = "(" + " | ".join(map(quoted, kind.choices)) + ")"
            else:
                value = rules.schema(kind.schema, at)
            rules.rules.append(f"{name}: {begin} {value} {end}".rstrip())
            pairs.append((name, key in required))
        return self._list(markup, rules, pairs, prefix)

    def _raw(self, markup: Markup, rules: RuleWriter, name: str, end: str) -> str:
        """A plain string with what comes behind it, as it is or between quotes."""
        if self.quotes is None:
            return _until(markup, rules, f"{name}_value", end)
        before, behind = self.quotes
        plain = _until(markup, rules, f"{name}_value", end, before)
        return f"({plain} | {markup.lark(before)} {_until(markup, rules, f'{name}_quoted', behind + end)})"

    def _list(self, markup: Markup, rules: RuleWriter, pairs: list[tuple[str, bool]], prefix: str) -> str:
        if not self.join:
            return " ".join(name if needed else f"{name}?" for name, needed in pairs) or '""'
        # The pairs from one on: behind another pair, or as the first.
        behind, first = '""', '""'
        for number, (name, needed) in reversed(list(enumerate(pairs))):
            after, alone = f"{markup.lark(self.join)} {name} {behind}", f"{name} {behind}"
            rules.rules.append(f"{prefix}_behind_{number}: {after if needed else f'{after} | {behind}'}")
            rules.rules.append(f"{prefix}_first_{number}: {alone if needed else f'{alone} | {first}'}")
            behind, first = f"{prefix}_behind_{number}", f"{prefix}_first_{number}"
        return first


def _until(markup: Markup, rules: RuleWriter, name: str, end: str, excludes: str = "") -> str:
    """Any text up to the first ``end``, and that; the text does not begin with ``excludes``.

    A control token cannot be in text: text before one is all that is none.
    """
    first, token = markup.segments(end)[0]
    body = f"/{TEXT}/" if token is not None else f"/{TEXT}{pattern(first)}/"
    if excludes and not markup.has_control(excludes):
        body += f" & ~/{pattern(excludes)}{TEXT}/"
    text = f"{name}_text".upper()
    rules.rules.append(f"{text}: {body}")
    if token is not None:
        return f"{text} {markup.lark(end)}"
    rules.rules.append(f"{name}[lazy]: {text}")
    return f"{name} {markup.lark(end[len(first) :])}" if len(first) < len(end) else name


@dataclass(frozen=True)
class _Kind:
    """How a property's value is written.

    Attributes:
        raw: as it is, to become a JSON string.
        choices: exactly one of these texts.
        schema: the schema of a value that is written as JSON.
    """

    raw: bool
    choices: list[str] | None = None
    schema: Any = None


_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _kind(syntax: PairSyntax, key: str, schema: Any, definitions: dict[str, Any]) -> _Kind:
    if not isinstance(schema, dict):
        return _Kind(raw=False, schema=schema)
    said = schema.keys() - _ANNOTATIONS
    if syntax.python and said == {"type"} and schema["type"] == "boolean":
        return _Kind(raw=False, choices=["True", "False"])
    if syntax.raw_strings and said == {"type"} and schema["type"] == "string":
        return _Kind(raw=True)
    values = schema.get("enum")
    if (
        syntax.raw_strings
        and said <= {"type", "enum"}
        and schema.get("type", "string") == "string"
        and isinstance(values, list)
        and values
        and all(isinstance(value, str) and value and _is_plain(syntax, key, value) for value in values)
    ):
        return _Kind(raw=True, choices=values)
    return _Kind(raw=False, schema={**definitions, **schema})


def _is_plain(syntax: PairSyntax, key: str, value: str) -> bool:
    """Whether a text can be written without quotes."""
    quoted_ = syntax.quotes is not None and value.startswith(syntax.quotes[0])
    return not quoted_ and syntax.around(key)[1] not in value


def _object(schema: Any, param: str) -> tuple[dict[str, Any], set[str], dict[str, Any]]:
    """Properties, names of those that must be there, and definitions that they may refer to."""
    definitions = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    seen = 0
    while "$ref" in schema and seen < 16:
        seen += 1
        parts = str(schema["$ref"]).split("/")
        table = definitions.get(parts[1]) if len(parts) == 3 and parts[0] == "#" else None
        inner = table.get(parts[2]) if isinstance(table, dict) else None
        if not isinstance(inner, dict):
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


@dataclass
class PairReader:
    """Makes one JSON object of pairs."""

    syntax: PairSyntax
    markup: Markup
    kinds: dict[str, _Kind]
    _buffer: str = ""
    _end: str = ""
    _may_be_quoted: bool = False
    _written: int = 0
    _kind: _Kind | None = None
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False
    _out: list[str] = field(default_factory=list)

    def feed(self, text: str) -> tuple[str, str | None]:
        """See :class:`~llgtrt.tools.arguments.ArgumentReader`."""
        self._buffer += text
        rest = None
        while True:
            if self._kind is None:
                step = self._begin()
                if step == "end":
                    self._out.append("}" if self._written else "{}")
                    rest, self._buffer = self._buffer, ""
                if step != "value":
                    break
            elif not self._value():
                break
        out, self._out = "".join(self._out), []
        return out, rest

    def finish(self) -> str:
        """What is held back is not certain: a cut answer ends before it."""
        return ""

    def _begin(self) -> str:
        join = self.syntax.join if self._written else ""
        for key, kind in self.kinds.items():
            before, behind = self.syntax.around(key)
            begin = self.markup.shown(join + before)
            if self._buffer.startswith(begin):
                self._buffer = self._buffer[len(begin) :]
                name = json.dumps(key, ensure_ascii=False)
                self._out.append(", " if self._written else "{")
                self._out.append(f'{name}: "' if kind.raw else f"{name}: ")
                self._written += 1
                self._kind = kind
                self._end = self.markup.shown(behind)
                self._may_be_quoted = kind.raw and kind.choices is None and self.syntax.quotes is not None
                return "value"
            if begin.startswith(self._buffer):
                return "wait"
        return "end" if self._buffer else "wait"

    def _value(self) -> bool:
        assert self._kind is not None
        return self._raw() if self._kind.raw else self._json()

    def _raw(self) -> bool:
        if self._may_be_quoted and not self._find_quotes():
            return False
        end = self._end
        at = self._buffer.find(end)
        if at < 0:
            at = len(self._buffer) - overlap(self._buffer, end)
            self._out.append(json.dumps(self._buffer[:at], ensure_ascii=False)[1:-1])
            self._buffer = self._buffer[at:]
            return False
        self._out.append(json.dumps(self._buffer[:at], ensure_ascii=False)[1:])
        self._buffer = self._buffer[at + len(end) :]
        self._kind = None
        return True

    def _find_quotes(self) -> bool:
        """Whether it is known if the string stands between quotes."""
        assert self.syntax.quotes is not None
        before, behind = map(self.markup.shown, self.syntax.quotes)
        if self._buffer.startswith(before):
            self._buffer = self._buffer[len(before) :]
            self._end = behind + self._end
        elif before.startswith(self._buffer):
            return False
        self._may_be_quoted = False
        return True

    def _json(self) -> bool:
        """JSON goes on as it is, up to what cannot belong to it."""
        stops = self._end[:1] or ",)"
        for at, character in enumerate(self._buffer):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif self._depth == 0 and character in stops:
                if len(self._buffer) - at < len(self._end):
                    self._show(at)
                    return False
                self._show(at)
                self._buffer = self._buffer[len(self._end) :]
                self._kind = None
                return True
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
        if self._kind is not None and self._kind.choices is None:
            self._show(len(self._buffer))
        # A word of Python's is shown when it is complete.
        return False

    def _show(self, length: int) -> None:
        text = self._buffer[:length]
        self._buffer = self._buffer[length:]
        assert self._kind is not None
        if self._kind.choices is not None:
            text = _PYTHON.get(text, text)
        self._out.append(text)
