"""xgrammar's structural tags: text in which tags begin parts that follow a constraint of their own.

A structural tag is a tree of formats. It becomes one Lark grammar, and each schema in it a grammar of its
own, so that schemas go through the same checks and rewritings as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.constraint import Constraint, gbnf_text, json_text, schema_from_text
from llgtrt.tools import Markup
from llgtrt.tools.arguments import RuleWriter
from llgtrt.tools.markup import TEXT, pattern, slashed

MOST_FORMATS = 1024
"""Formats in one structural tag."""
MOST_DEPTH = 32


def structural_tag(value: Any, param: str, markup: Markup) -> Constraint:
    """The constraint of a structural tag: an object, or its JSON text.

    Args:
        value: ``{"type": "structural_tag", "format": ...}``, or the older form with ``structures`` and
            ``triggers``.
        param: the field that errors name.
        markup: which texts are control tokens of the model.

    Raises:
        RequestError: it is malformed, or holds a format that cannot be enforced here.
    """
    if isinstance(value, str):
        value = schema_from_text(value, param)
    if not isinstance(value, dict):
        raise RequestError(f"{param} must be an object.", param)
    writer = _Writer(markup)
    if "format" in value:
        start = writer.format(value["format"], f"{param}.format", 0)
    elif "structures" in value:
        start = writer.triggered(_older(value, param), param, 0)
    else:
        raise RequestError(f"{param} needs the member format, or structures and triggers.", param)
    lark = "\n".join([f"start: {start}", *writer.rules.rules])
    grammars = [{"name": "answer", "lark_grammar": lark}, *writer.rules.grammars]
    text = json_text({"grammars": grammars}, param)
    places = (*writer.rules.places, ("", param))
    return Constraint(GrammarSpec.llguidance(text), param, text, places=places)


def _older(value: dict[str, Any], param: str) -> dict[str, Any]:
    """The form of xgrammar before 0.1.22 as a format."""
    structures, tags = _list(value, "structures", param), []
    for index, one in enumerate(structures):
        path = f"{param}.structures[{index}]"
        if not isinstance(one, dict):
            raise RequestError(f"{path} must be an object.", path)
        schema = one.get("schema", {})
        tags.append(
            {**one, "content": {"type": "json_schema", "json_schema": schema}, "end": one.get("end", "")}
        )
    return {"type": "triggered_tags", "triggers": value.get("triggers"), "tags": tags}


class _Writer:
    """Writes the rules of one structural tag."""

    def __init__(self, markup: Markup) -> None:
        self.rules = RuleWriter()
        self._markup = markup
        self._count = 0

    def format(self, value: Any, path: str, depth: int) -> str:
        """The expression that matches a format."""
        self._count += 1
        if depth > MOST_DEPTH or self._count > MOST_FORMATS:
            raise RequestError(f"{path}: the structural tag is too large.", path)
        kind = value.get("type") if isinstance(value, dict) else None
        write: dict[str, Callable[[dict[str, Any], str, int], str]] = {
            "const_string": self._const,
            "json_schema": self._schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self.triggered,
            "tags_with_separator": self._separated,
        }
        if kind not in write:
            raise RequestError(f"{path}: the format {quote(kind)} is not supported.", f"{path}.type")
        return write[kind](value, path, depth)

    def _const(self, value: dict[str, Any], path: str, _depth: int) -> str:
        return self._markup.lark(_text(value, "value", path))

    def _schema(self, value: dict[str, Any], path: str, _depth: int) -> str:
        _refuse(value, path, style=("json",))
        schema = value.get("json_schema")
        if not isinstance(schema, dict | bool):
            raise RequestError(f"{path}.json_schema must be a JSON schema.", f"{path}.json_schema")
        # Parts of an answer are not checked beside the grammar: what no grammar holds is refused.
        own = schema.get("x-guidance", {}) if isinstance(schema, dict) else {}
        guidance = {**own, "residual": "refuse"} if isinstance(own, dict) else own
        strict = {**schema, "x-guidance": guidance} if isinstance(schema, dict) else schema
        return self.rules.schema(strict, f"{path}.json_schema")

    def _regex(self, value: dict[str, Any], path: str, _depth: int) -> str:
        _refuse(value, path, excludes=([],))
        lark = f"start: /{slashed(_text(value, 'pattern', path))}/"
        return self.rules.grammar({"lark_grammar": lark}, "lark_grammar", f"{path}.pattern")

    def _grammar(self, value: dict[str, Any], path: str, _depth: int) -> str:
        lark = gbnf_text(_text(value, "grammar", path), f"{path}.grammar")
        return self.rules.grammar({"lark_grammar": lark}, "lark_grammar", f"{path}.grammar")

    def _any_text(self, value: dict[str, Any], path: str, _depth: int) -> str:
        return self._free(_texts(value, "excludes", path))

    def _sequence(self, value: dict[str, Any], path: str, depth: int) -> str:
        elements = _list(value, "elements", path)
        written = []
        for index, element in enumerate(elements):
            at = f"{path}.elements[{index}]"
            following = elements[index + 1] if index + 1 < len(elements) else None
            if isinstance(element, dict) and element.get("type") == "any_text" and following is not None:
                raise RequestError(f"{at}: any_text is only supported at the end, or in a tag.", at)
            written.append(self.format(element, at, depth + 1))
        return f"({' '.join(written)})"

    def _or(self, value: dict[str, Any], path: str, depth: int) -> str:
        elements = _list(value, "elements", path)
        written = [
            self.format(element, f"{path}.elements[{index}]", depth + 1)
            for index, element in enumerate(elements)
        ]
        return f"({' | '.join(written)})"

    def _tag(self, value: dict[str, Any], path: str, depth: int, read: str = "") -> str:
        """A tag, of whose beginning ``read`` has come already."""
        begin = _text(value, "begin", path)
        head = self._markup.lark(begin[len(read) :])
        content, ends = value.get("content"), self._ends(value, path)
        if isinstance(content, dict) and content.get("type") == "any_text":
            return f"({head} {self._until(ends, _texts(content, 'excludes', f'{path}.content'), path)})"
        tails = " | ".join(self._markup.lark(end) for end in ends)
        return f"({head} {self.format(content, f'{path}.content', depth + 1)} ({tails}))"

    @staticmethod
    def _ends(value: dict[str, Any], path: str) -> list[str]:
        if isinstance(value.get("end"), list):
            ends = _texts(value, "end", path)
            if ends:
                return ends
        return [_text(value, "end", path, empty=True)]

    def triggered(self, value: dict[str, Any], path: str, depth: int) -> str:
        """Text with tags in it, each of which begins with one of the triggers."""
        triggers, tags = _texts(value, "triggers", path), _list(value, "tags", path)
        if not triggers:
            raise RequestError(f"{path}.triggers must not be empty.", f"{path}.triggers")
        excludes = _texts(value, "excludes", path)
        calls: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        for index, tag in enumerate(tags):
            at = f"{path}.tags[{index}]"
            begin = _text(tag, "begin", at) if isinstance(tag, dict) else None
            if begin is None:
                raise RequestError(f"{at} must be a tag.", at)
            trigger = max((one for one in triggers if begin.startswith(one)), key=len, default=None)
            if trigger is None:
                raise RequestError(f"{at}.begin begins with none of the triggers.", f"{at}.begin")
            calls[trigger].append(self._tag(tag, at, depth + 1, trigger))
        name = self._name("tagged")
        parts = []
        for trigger, written in calls.items():
            if written:
                lead = self._until([trigger], excludes, path)
                parts.append(f"{lead} ({' | '.join(written)})")
        self.rules.rules.append(f"{name}: {' | '.join(parts)}")
        rest = self._free([*triggers, *excludes])
        once, least = value.get("stop_after_first") is True, value.get("at_least_one") is True
        if once:
            return name if least else f"({name} | {rest})"
        return f"({name}+ {rest})" if least else f"({name}* {rest})"

    def _separated(self, value: dict[str, Any], path: str, depth: int) -> str:
        tags = [
            self._tag(tag, f"{path}.tags[{index}]", depth + 1)
            for index, tag in enumerate(_list(value, "tags", path))
            if isinstance(tag, dict)
        ]
        name = self._name("tag")
        self.rules.rules.append(f"{name}: {' | '.join(tags)}")
        separator = self._markup.lark(_text(value, "separator", path, empty=True))
        several = name if value.get("stop_after_first") is True else f"{name} ({separator} {name})*"
        return f"({several})" if value.get("at_least_one") is True else f"({several})?"

    def _until(self, ends: list[str], excludes: list[str], path: str) -> str:
        """Text up to the first of some ends, and that end."""
        if all(self._markup.has_control(end) and self._markup.lark(end).count("<[") == 1 for end in ends):
            # A control token cannot be in text: the text before it is whatever is none.
            tails = " | ".join(self._markup.lark(end) for end in ends)
            return f"{self._free(excludes)} ({tails})"
        if any(self._markup.has_control(end) for end in ends) or "" in ends:
            raise RequestError(f"{path}: this end of free text is not supported.", path)
        if excludes:
            raise RequestError(f"{path}: excludes is not supported before an end.", path)
        name = self._name("until")
        self.rules.rules.append(f"{name}[lazy]: /{TEXT}({'|'.join(map(pattern, ends))})/")
        return name

    def _free(self, excludes: list[str]) -> str:
        """Any text without these texts in it. Control tokens are never a part of it."""
        plain = [text for text in excludes if text and not self._markup.has_control(text)]
        name = self._name("TEXT")
        if plain:
            inside = "|".join(map(pattern, plain))
            self.rules.rules.append(f"{name}: /{TEXT}/ & ~/{TEXT}({inside}){TEXT}/")
        else:
            self.rules.rules.append(f"{name}: /{TEXT}/")
        return name

    def _name(self, kind: str) -> str:
        return f"{kind}_{len(self.rules.rules)}"


def _refuse(value: dict[str, Any], path: str, **neutral: tuple[Any, ...]) -> None:
    for name, values in neutral.items():
        given = value.get(name)
        if given is not None and given not in values:
            raise RequestError(f"{path}.{name}: this value is not supported.", f"{path}.{name}")


def _text(value: dict[str, Any], name: str, path: str, *, empty: bool = False) -> str:
    text = value.get(name)
    if not isinstance(text, str) or not (text or empty):
        raise RequestError(
            f"{path}.{name} must be a string{'' if empty else ', not empty'}.", f"{path}.{name}"
        )
    return text


def _texts(value: dict[str, Any], name: str, path: str) -> list[str]:
    texts = value.get(name)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise RequestError(f"{path}.{name} must be an array of strings.", f"{path}.{name}")
    return texts


def _list(value: dict[str, Any], name: str, path: str) -> list[Any]:
    items = value.get(name)
    if not isinstance(items, list) or not items:
        raise RequestError(f"{path}.{name} must be an array, not empty.", f"{path}.{name}")
    return items
