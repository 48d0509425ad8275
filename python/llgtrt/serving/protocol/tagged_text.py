"""Text that is free up to the first of some fixed texts, as expressions of Lark's."""

from __future__ import annotations

from collections.abc import Sequence

from llgtrt.serving.errors import RequestError, quote
from llgtrt.tools import Markup
from llgtrt.tools.arguments import RuleWriter
from llgtrt.tools.markup import TEXT, pattern

MOST_TEXT = 1 << 20
"""Characters of all rules of free text: each trigger is in the rule of every other."""


class TaggedText:
    """Writes the rules of free text.

    Args:
        rules: the grammar that they belong to.
        markup: which texts are control tokens of the model.
    """

    def __init__(self, rules: RuleWriter, markup: Markup) -> None:
        self._rules = rules
        self._markup = markup
        self._size = 0

    def free(self, excludes: Sequence[str]) -> str:
        """Any text without these texts in it. Control tokens are never a part of it."""
        plain = [text for text in excludes if text and not self._markup.has_control(text)]
        body = f"/{TEXT}/"
        if plain:
            body += f" & ~/{TEXT}({'|'.join(map(pattern, plain))}){TEXT}/"
        return self._rule("TEXT", body)

    def until(self, ends: Sequence[str], excludes: Sequence[str], path: str) -> str:
        """Text up to the first of some ends, and that end; nothing of ``excludes`` is in either.

        Raises:
            RequestError: no grammar tells where the text ends.
        """
        plain = [end for end in ends if not self._markup.has_control(end)]
        control = [end for end in ends if self._markup.has_control(end)]
        barred = [text for text in excludes if text and not self._markup.has_control(text)]
        for end in ends:
            if not end:
                raise RequestError(f"{path}: nothing tells where the free text ends.", path)
            inside = next((text for text in barred if text in end), None)
            if inside is not None:
                raise RequestError(
                    f"{path}: {quote(end)} can never come, as {quote(inside)} would come first.", path
                )
            if end in control and self._markup.segments(end)[0][1] is None:
                raise RequestError(f"{path}: text before a control token cannot end free text.", path)
        written = []
        if control:
            # A control token cannot be in text: what comes before it is all that is none.
            tails = " | ".join(map(self._markup.lark, control))
            written.append(f"{self.free([*plain, *barred])} ({tails})")
        if plain:
            body = f"/{TEXT}({'|'.join(map(pattern, plain))})/"
            if barred:
                body += f" & ~/{TEXT}({'|'.join(map(pattern, barred))}){TEXT}/"
            name = self.name("until")
            self._rules.rules.append(f"{name}[lazy]: {self._rule('UNTIL', body)}")
            written.append(name)
        return f"({' | '.join(written)})"

    def name(self, kind: str) -> str:
        """A name that no rule has."""
        return f"{kind}_{len(self._rules.rules)}"

    def _rule(self, kind: str, body: str) -> str:
        name = self.name(kind)
        self._size += len(body)
        if self._size > MOST_TEXT:
            raise RequestError("The structural tag has too many triggers, ends and excludes.")
        self._rules.rules.append(f"{name}: {body}")
        return name
