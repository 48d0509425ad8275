"""Arguments as a list of names and values, between tags or as in a call of Python's.

Only the properties that a schema lists are written, in its order. A plain string is written as it is; every
other value as JSON, or lists and objects between tags too where the family writes them so. A schema that says
more of the object as a whole cannot be written so and is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llgtrt.tools.arguments import ArgumentStyle, RuleWriter, UnsupportedSchemaError
from llgtrt.tools.markup import TEXT, Markup, pattern, quoted
from llgtrt.tools.pair_kinds import Kind, PairTexts, is_safe, kinds_of, object_of
from llgtrt.tools.pair_reader import PairReader

NO_CONTROL = Markup({})


class PairSyntax(PairTexts):
    """A way to write arguments as pairs."""

    def style(self, markup: Markup = NO_CONTROL) -> ArgumentStyle:
        """The style with these texts, for a model with some control tokens."""
        texts = (self.begin, self.end, self.join, *(self.quotes or ()))
        return ArgumentStyle(partial(self._grammar, markup), partial(self._reader, markup), texts, self.style)

    def _reader(self, markup: Markup, schema: Any) -> PairReader:
        properties, _required, definitions = object_of(schema, "")
        return PairReader(self, markup, kinds_of(self, properties, definitions))

    def _grammar(self, markup: Markup, rules: RuleWriter, schema: Any, prefix: str, param: str) -> str:
        properties, required, definitions = object_of(schema, param)
        pairs = []
        for number, (key, kind) in enumerate(kinds_of(self, properties, definitions).items()):
            at = f"{param}.properties.{key}"
            if not is_safe(key):
                raise UnsupportedSchemaError("the model's call format cannot write this name", at)
            name = f"{prefix}_{number}"
            self._pair(markup, rules, name, key, kind, at)
            pairs.append((name, key in required))
        return self._list(markup, rules, pairs, prefix)

    def _pair(self, markup: Markup, rules: RuleWriter, name: str, key: str, kind: Kind, at: str) -> None:
        """Writes the rule ``name``: the texts around a value, and the value."""
        before, behind = self.around(key)
        end = markup.lark(behind) if behind else ""
        if kind.raw and kind.choices is None:
            value, end = self._raw(markup, rules, name, behind), ""
        elif kind.choices is not None:
            value = "(" + " | ".join(map(quoted, kind.choices)) + ")"
        elif kind.items is not None:
            self._pair(markup, rules, f"{name}_item", self.item, kind.items, f"{at}.items")
            most = "" if kind.most is None else kind.most
            value = f"{name}_item{{{kind.least},{most}}}"
        elif kind.members:
            members = []
            for number, (member, (one, needed)) in enumerate(kind.members.items()):
                inner = f"{name}_m{number}"
                self._pair(markup, rules, inner, member, one, f"{at}.properties.{member}")
                members.append(inner if needed else f"{inner}?")
            value = " ".join(members)
        else:
            value = rules.schema(kind.schema, at)
        rules.rules.append(f"{name}: {markup.lark(before)} {value} {end}".rstrip())

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
