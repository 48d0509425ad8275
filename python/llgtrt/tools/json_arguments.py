"""Arguments as JSON: what most families write."""

from __future__ import annotations

from typing import Any

from llgtrt.tools.arguments import ArgumentStyle, RuleWriter


class JsonReader:
    """Finds the end of a JSON object and hands its text on as it is."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> tuple[str, str | None]:
        """See :class:`~llgtrt.tools.arguments.ArgumentReader`."""
        for at, character in enumerate(text):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif character == "\\":
                    self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth == 0:
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
