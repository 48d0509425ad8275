"""Arguments as JSON: what most families write."""

from __future__ import annotations

from typing import Any

from llgtrt.tools.arguments import ArgumentStyle, RuleWriter


class JsonNesting:
    """Where in a JSON text its reader is.

    Attributes:
        depth: brackets that are open.
        in_string: whether a string is.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = False
        self._escaped = False

    def take(self, character: str) -> None:
        """Goes on behind the next character."""
        if self.in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self.in_string = False
        elif character == '"':
            self.in_string = True
        elif character in "{[":
            self.depth += 1
        elif character in "}]":
            self.depth -= 1


class JsonReader:
    """Finds the end of a JSON object and hands its text on as it is."""

    def __init__(self) -> None:
        self._nesting = JsonNesting()

    def feed(self, text: str) -> tuple[str, str | None]:
        """See :class:`~llgtrt.tools.arguments.ArgumentReader`."""
        nesting = self._nesting
        for at, character in enumerate(text):
            nesting.take(character)
            if character in "}]" and nesting.depth == 0 and not nesting.in_string:
                return text[: at + 1], text[at + 1 :]
        return text, None

    def finish(self) -> str:
        """Nothing is ever held back."""
        return ""


def _grammar(rules: RuleWriter, schema: Any, _prefix: str, param: str) -> str:
    return rules.schema(schema, param)


def _reader(_schema: Any) -> JsonReader:
    return JsonReader()


JSON_ARGUMENTS = ArgumentStyle(_grammar, _reader)
