"""The contract of a way to write arguments: a grammar for them, and a reader that makes JSON of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


class UnsupportedSchemaError(ValueError):
    """The arguments of a tool cannot be written in the model's format.

    Attributes:
        message: why.
        path: the dotted path in the schema; empty for all of it.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class ArgumentReader(Protocol):
    """Reads the arguments of one call."""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Takes the next piece of the answer.

        Gives the JSON that is certain with it, and, once the arguments are complete, the text behind them.
        """

    def finish(self) -> str:
        """The JSON that is still held back, for an answer that was cut."""


@dataclass
class RuleWriter:
    """Collects the Lark rules of one grammar and the JSON schemas that they refer to.

    Attributes:
        rules: lines of Lark.
        grammars: further entries of llguidance's list of grammars.
        places: paths of ``grammars`` and what they are in the request.
    """

    rules: list[str] = field(default_factory=list)
    grammars: list[dict[str, Any]] = field(default_factory=list)
    places: list[tuple[str, str]] = field(default_factory=list)

    def schema(self, schema: Any, param: str) -> str:
        """A reference to a schema; errors in it name ``param``."""
        return self.grammar({"json_schema": schema}, "json_schema", param)

    def grammar(self, entry: dict[str, Any], member: str, param: str) -> str:
        """A reference to a grammar of its own; ``member`` is the one that holds its text."""
        index = len(self.grammars) + 1
        self.grammars.append({"name": f"part_{index}", **entry})
        self.places.append((f"grammars[{index}].{member}", param))
        return f"@part_{index}"


@dataclass(frozen=True)
class ArgumentStyle:
    """A way to write arguments.

    Attributes:
        grammar: writes the rules for the arguments of a tool's schema under a prefix that no other rule has,
            and gives the expression that matches them. The path is that of the schema in the request.
        reader: a reader of arguments under that schema.

    ``grammar`` raises :class:`UnsupportedSchemaError` where the style cannot hold a schema.
    """

    grammar: Callable[[RuleWriter, Any, str, str], str]
    reader: Callable[[Any], ArgumentReader]
