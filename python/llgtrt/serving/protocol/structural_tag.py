"""xgrammar's structural tags: text in which tags begin parts that follow a constraint of their own.

A structural tag is a tree of formats. It becomes one Lark grammar, and each schema in it a grammar of its
own, so that schemas go through the same checks and rewritings as everywhere. Where a format leaves the text
free, what comes behind it decides where that ends: formats are written with what follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from llgtrt.engine import GrammarSpec
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.constraint import Constraint, gbnf_text, json_text, schema_from_text
from llgtrt.serving.protocol.structural_members import (
    json_options,
    member_list,
    member_text,
    member_texts,
    only_known,
    times,
)
from llgtrt.serving.protocol.tagged_text import TaggedText
from llgtrt.tools import ControlTokens, Markup
from llgtrt.tools.arguments import RuleWriter
from llgtrt.tools.markup import slashed

MOST_FORMATS = 1024
"""Formats in one structural tag."""
MOST_DEPTH = 32

Follow: TypeAlias = tuple[str, ...] | None
"""What comes behind a format: one of these texts, which is a part of its expression then. None of them: the
answer ends there. ``None``: something that does not tell where free text ends."""

END: Follow = ()

MEMBERS: dict[str, frozenset[str]] = {
    "const_string": frozenset({"value"}),
    "json_schema": frozenset(
        {
            "json_schema",
            "style",
            "any_order",
            "strict_mode",
            "reject_unsupported",
            "any_whitespace",
            "indent",
            "separators",
            "max_whitespace_cnt",
        }
    ),
    "regex": frozenset({"pattern"}),
    "grammar": frozenset({"grammar"}),
    "any_text": frozenset({"excludes"}),
    "token": frozenset({"token"}),
    "sequence": frozenset({"elements"}),
    "or": frozenset({"elements"}),
    "optional": frozenset({"content"}),
    "plus": frozenset({"content"}),
    "star": frozenset({"content"}),
    "repeat": frozenset({"content", "min", "max"}),
    "tag": frozenset({"begin", "content", "end"}),
    "triggered_tags": frozenset({"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}),
    "tags_with_separator": frozenset({"tags", "separator", "at_least_one", "stop_after_first"}),
    "dispatch": frozenset({"rules", "loop", "excludes"}),
}
"""The formats and their members, beside ``type``."""


def structural_tag(value: Any, param: str, control: ControlTokens) -> Constraint:
    """The constraint of a structural tag: an object, or its JSON text.

    Args:
        value: ``{"type": "structural_tag", "format": ...}``, or the older form with ``structures`` and
            ``triggers``.
        param: the field that errors name.
        control: the model's control tokens.

    Raises:
        RequestError: it is malformed, or holds a format that cannot be enforced here.
    """
    if isinstance(value, str):
        value = schema_from_text(value, param)
    if not isinstance(value, dict):
        raise RequestError(f"{param} must be an object.", param)
    writer = _Writer(control.markup(_texts_in(value)))
    if value.get("format") is not None:
        only_known(value, {"type", "format"}, param)
        start = writer.format(value["format"], f"{param}.format", 0, END)
    elif value.get("structures") is not None:
        only_known(value, {"type", "structures", "triggers"}, param)
        start = writer.older(value, param)
    else:
        raise RequestError(f"{param} needs the member format, or structures and triggers.", param)
    grammars, places = writer.rules.listed(start, param)
    text = json_text({"grammars": grammars}, param)
    parts = tuple(writer.rules.parts)
    return Constraint(GrammarSpec.llguidance(text), param, text, parts=parts, places=tuple(places))


def _texts_in(value: Any) -> Iterator[str]:
    """The texts of a value that may name control tokens: all but those in schemas."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            waiting += [member for name, member in one.items() if name not in ("json_schema", "schema")]


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag whose content is written.

    Attributes:
        begin: what it begins with.
        body: the rule of what comes behind that, its end included.
        path: where it is in the request.
    """

    begin: str
    body: str
    path: str


class _Writer:
    """Writes the rules of one structural tag."""

    def __init__(self, markup: Markup) -> None:
        self.rules = RuleWriter(prefix="tagged")
        self._markup = markup
        self._text = TaggedText(self.rules, markup)
        self._count = 0
        self._writers: dict[str, Callable[[dict[str, Any], str, int, Follow], str]] = {
            "const_string": self._const,
            "json_schema": self._schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "any_text": self._any_text,
            "token": self._token,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._repeated,
            "plus": self._repeated,
            "star": self._repeated,
            "repeat": self._repeated,
            "tag": self._single_tag,
            "triggered_tags": self._triggered,
            "tags_with_separator": self._separated,
            "dispatch": self._dispatch,
        }

    def format(self, value: Any, path: str, depth: int, follow: Follow) -> str:
        """The expression that matches a format and what follows it."""
        self._count += 1
        if depth > MOST_DEPTH or self._count > MOST_FORMATS:
            raise RequestError(f"{path}: the structural tag is too large.", path)
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in self._writers:
            raise RequestError(f"{path}: the format {quote(kind)} is not supported.", f"{path}.type")
        only_known(value, MEMBERS[kind] | {"type"}, path)
        return self._writers[kind](value, path, depth, follow)

    def older(self, value: dict[str, Any], param: str) -> str:
        """The form before xgrammar 0.1.22."""
        tags = []
        for index, one in enumerate(member_list(value, "structures", param)):
            path = f"{param}.structures[{index}]"
            if not isinstance(one, dict):
                raise RequestError(f"{path} must be an object.", path)
            only_known(one, {"begin", "schema", "end"}, path)
            schema = one.get("schema")
            if isinstance(schema, str):
                schema = schema_from_text(schema, f"{path}.schema")
            content = self._schema_part({} if schema is None else schema, f"{path}.schema", {})
            end = self._markup.lark(member_text({"end": "", **one}, "end", path, empty=True))
            tags.append(self._tag_of(member_text(one, "begin", path), f"{content} {end}", path))
        triggers = member_texts(value, "triggers", param)
        return self._tagged(triggers, tags, param, END)

    def _then(self, expression: str, follow: Follow) -> str:
        if not follow:
            return expression
        return f"({expression} ({' | '.join(map(self._markup.lark, follow))}))"

    def _const(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        return self._then(self._markup.lark(member_text(value, "value", path)), follow)

    def _token(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        return self._then(self._markup.lark(self._control(value, path)), follow)

    def _control(self, value: dict[str, Any], path: str) -> str:
        """The name of the control token that a format of one token asks for."""
        name = value.get("token")
        if not isinstance(name, str) or [one for _part, one in self._markup.segments(name)] in ([], [None]):
            raise RequestError(
                f"{path}.token must be the name of a control token of this model.", f"{path}.token"
            )
        return name

    def _schema(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        if value.get("style") not in (None, "json"):
            raise RequestError(f"{path}.style: only 'json' is supported.", f"{path}.style")
        return self._then(
            self._schema_part(value.get("json_schema"), f"{path}.json_schema", json_options(value, path)),
            follow,
        )

    def _schema_part(self, schema: Any, path: str, options: dict[str, Any]) -> str:
        if not isinstance(schema, dict | bool):
            raise RequestError(f"{path} must be a JSON schema.", path)
        # Parts of an answer are not checked beside the grammar: what no grammar holds is refused.
        given = schema if isinstance(schema, dict) else {} if schema else {"not": {}}
        own = given.get("x-guidance", {})
        guidance = {**options, **own, "residual": "refuse"} if isinstance(own, dict) else own
        return self.rules.schema({**given, "x-guidance": guidance}, path)

    def _regex(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        lark = f"start: /{slashed(member_text(value, 'pattern', path))}/"
        part = self.rules.grammar({"lark_grammar": lark}, "lark_grammar", f"{path}.pattern")
        return self._then(part, follow)

    def _grammar(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        lark = gbnf_text(member_text(value, "grammar", path), f"{path}.grammar")
        part = self.rules.grammar({"lark_grammar": lark}, "lark_grammar", f"{path}.grammar")
        return self._then(part, follow)

    def _any_text(self, value: dict[str, Any], path: str, _depth: int, follow: Follow) -> str:
        return self._rest(member_texts(value, "excludes", path), path, follow)

    def _rest(self, excludes: list[str], path: str, follow: Follow) -> str:
        """Free text up to what follows."""
        if follow is None:
            raise RequestError(f"{path}: free text must be at the end, or in a tag that has an end.", path)
        return self._text.until(follow, excludes, path) if follow else self._text.free(excludes)

    def _sequence(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        elements = member_list(value, "elements", path)
        last = len(elements) - 1
        written = [
            self.format(element, f"{path}.elements[{index}]", depth + 1, follow if index == last else None)
            for index, element in enumerate(elements)
        ]
        return f"({' '.join(written)})"

    def _or(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        written = [
            self.format(element, f"{path}.elements[{index}]", depth + 1, follow)
            for index, element in enumerate(member_list(value, "elements", path))
        ]
        return f"({' | '.join(written)})"

    def _repeated(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        content = self.format(value.get("content"), f"{path}.content", depth + 1, None)
        signs = {"optional": "?", "plus": "+", "star": "*"}
        sign = signs.get(value["type"]) or times(value, path)
        return self._then(f"({content}){sign}", follow)

    def _single_tag(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        tag = self._tag(value, path, depth, follow)
        return f"({self._markup.lark(tag.begin)} {tag.body})"

    def _tag(self, value: Any, path: str, depth: int, follow: Follow) -> _Tag:
        if not isinstance(value, dict) or value.get("type") not in (None, "tag"):
            raise RequestError(f"{path} must be a tag.", path)
        only_known(value, MEMBERS["tag"] | {"type"}, path)
        begin, ends = self._begin(value, path), self._ends(value, path)
        inner: Follow = follow if ends == [""] else tuple(ends)
        body = self.format(value.get("content"), f"{path}.content", depth + 1, inner)
        if ends != [""]:
            body = self._then(body, follow)
        return self._tag_of(begin, body, path)

    def _tag_of(self, begin: str, body: str, path: str) -> _Tag:
        name = self._text.name("body")
        self.rules.rules.append(f"{name}: {body}")
        return _Tag(begin, name, path)

    def _begin(self, value: dict[str, Any], path: str) -> str:
        begin = value.get("begin")
        if isinstance(begin, dict) and begin.get("type") == "token":
            return self._control(begin, f"{path}.begin")
        return member_text(value, "begin", path)

    def _ends(self, value: dict[str, Any], path: str) -> list[str]:
        end = value.get("end")
        if isinstance(end, dict) and end.get("type") == "token":
            return [self._control(end, f"{path}.end")]
        if isinstance(end, list) and end:
            return member_texts(value, "end", path)
        return [member_text(value, "end", path, empty=True)]

    def _triggered(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        once, least = value.get("stop_after_first") is True, value.get("at_least_one") is True
        behind = follow if once else None
        tags = [
            self._tag(tag, f"{path}.tags[{index}]", depth + 1, behind)
            for index, tag in enumerate(member_list(value, "tags", path))
        ]
        triggers, excludes = member_texts(value, "triggers", path), member_texts(value, "excludes", path)
        return self._tagged(triggers, tags, path, follow, excludes, once=once, least=least)

    def _dispatch(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        once = value.get("loop") is False
        tags = []
        for index, rule in enumerate(member_list(value, "rules", path)):
            at = f"{path}.rules[{index}]"
            if not isinstance(rule, list) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
                raise RequestError(f"{at} must be an array of a text and a format.", at)
            body = self.format(rule[1], f"{at}[1]", depth + 1, follow if once else None)
            tags.append(self._tag_of(rule[0], body, at))
        triggers = [tag.begin for tag in tags]
        return self._tagged(triggers, tags, path, follow, member_texts(value, "excludes", path), once=once)

    def _tagged(
        self,
        triggers: list[str],
        tags: list[_Tag],
        path: str,
        follow: Follow,
        excludes: list[str] | None = None,
        *,
        once: bool = False,
        least: bool = False,
    ) -> str:
        """Text with tags in it, each of which begins with one of the triggers.

        Args:
            once: nothing comes behind the first tag but what follows.
            least: a tag comes first, with no text before it.
        """
        if not triggers:
            raise RequestError(f"{path}.triggers must be an array of strings, not empty.", f"{path}.triggers")
        excludes = excludes or []
        of_trigger: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        for tag in tags:
            fitting = [trigger for trigger in of_trigger if tag.begin.startswith(trigger)]
            at = f"{tag.path}.begin"
            if len(fitting) != 1:
                count = "several" if fitting else "none"
                raise RequestError(f"{at} begins with {count} of the triggers.", at)
            rest = tag.begin[len(fitting[0]) :]
            if self._markup.shown(fitting[0]) + self._markup.shown(rest) != self._markup.shown(tag.begin):
                raise RequestError(f"{at}: its trigger ends within a control token.", at)
            of_trigger[fitting[0]].append(f"{self._markup.lark(rest)} {tag.body}")
        first = " | ".join(f"{self._markup.lark(tag.begin)} {tag.body}" for tag in tags)
        if once and least:
            return f"({first})"
        barred = [*excludes, *(follow or ())]
        parts = [
            f"{self._text.until([trigger], [*(one for one in of_trigger if one != trigger), *barred], path)} "
            f"({' | '.join(bodies)})"
            for trigger, bodies in of_trigger.items()
            if bodies
        ]
        name = self._text.name("tags")
        self.rules.rules.append(f"{name}: {' | '.join(parts)}")
        rest = self._rest([*of_trigger, *excludes], path, follow)
        if once:
            return f"({name} | {rest})"
        return f"(({first}) {name}* {rest})" if least else f"({name}* {rest})"

    def _separated(self, value: dict[str, Any], path: str, depth: int, follow: Follow) -> str:
        tags = [
            self._tag(tag, f"{path}.tags[{index}]", depth + 1, None)
            for index, tag in enumerate(member_list(value, "tags", path))
        ]
        name = self._text.name("tag")
        written = (f"{self._markup.lark(tag.begin)} {tag.body}" for tag in tags)
        self.rules.rules.append(f"{name}: {' | '.join(written)}")
        separator = self._markup.lark(member_text(value, "separator", path, empty=True))
        several = name if value.get("stop_after_first") is True else f"{name} ({separator} {name})*"
        return self._then(f"({several})" if value.get("at_least_one") is True else f"({several})?", follow)
