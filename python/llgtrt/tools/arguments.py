"""The contract of a way to write arguments: a grammar for them, and a reader that makes JSON of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from llgtrt.tools.markup import Markup


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


@dataclass(frozen=True)
class Part:
    """One grammar that another refers to by its name.

    Attributes:
        entry: the entry of llguidance's list of grammars, with its name.
        member: the member of it that holds the text.
        param: what it is in the request.
    """

    entry: dict[str, Any]
    member: str
    param: str


@dataclass
class RuleWriter:
    """Collects the Lark rules of one grammar and the grammars that they refer to.

    Attributes:
        rules: lines of Lark.
        parts: the further entries of llguidance's list of grammars.
        prefix: what the names of ``parts`` begin with.
    """

    rules: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    prefix: str = "part"

    def schema(self, schema: Any, param: str) -> str:
        """A reference to a schema; errors in it name ``param``."""
        return self.grammar({"json_schema": schema}, "json_schema", param)

    def grammar(self, entry: dict[str, Any], member: str, param: str) -> str:
        """A reference to a grammar of its own; ``member`` is the one that holds its text."""
        name = f"{self.prefix}_{len(self.parts) + 1}"
        self.parts.append(Part({"name": name, **entry}, member, param))
        return f"@{name}"

    def listed(self, start: str, param: str) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        """llguidance's list of grammars, of which the first matches ``start``.

        Also gives prefixes of paths in it and what they are in the request, where ``param`` is the first;
        the first prefix that fits counts.
        """
        lark = "\n".join([f"start: {start}", *self.rules])
        grammars = [{"name": "answer", "lark_grammar": lark}, *(part.entry for part in self.parts)]
        places = [
            (f"grammars[{index}].{part.member}", part.param) for index, part in enumerate(self.parts, 1)
        ]
        return grammars, [*places, ("", param)]


@dataclass(frozen=True)
class ArgumentStyle:
    """A way to write arguments.

    Attributes:
        grammar: writes the rules for the arguments of a tool's schema under a prefix that no other rule has,
            and gives the expression that matches them. The path is that of the schema in the request.
        reader: a reader of arguments under that schema.

        texts: fixed texts, of which parts may be control tokens of a model.
        of: the same style for a model with some control tokens; ``None``: it is the same for all.

    ``grammar`` raises :class:`UnsupportedSchemaError` where the style cannot hold a schema.
    """

    grammar: Callable[[RuleWriter, Any, str, str], str]
    reader: Callable[[Any], ArgumentReader]
    texts: tuple[str, ...] = ()
    of: Callable[[Markup], ArgumentStyle] | None = None

    def of_model(self, markup: Markup) -> ArgumentStyle:
        """The style for a model with these control tokens."""
        return self if self.of is None else self.of(markup)
