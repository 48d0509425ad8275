"""Fixed texts of a format, in a model's vocabulary: which parts of them are control tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

CONTROL_OPEN = "\ufdd0"
CONTROL_CLOSE = "\ufdd1"
"""Stand around the name of a control token in the answer's text, where a request asks for these names."""

_CONTROL = re.compile(f"{CONTROL_OPEN}[^{CONTROL_CLOSE}]*(?:{CONTROL_CLOSE}|$)|{CONTROL_CLOSE}")

TEXT = r"(.|\n)*"
"""Any text, as a regular expression of Lark's."""


@dataclass(frozen=True)
class ControlTokens:
    """A model's control tokens.

    Attributes:
        names: all of their names.
        encode: the tokens of a name. One of which this gives several cannot be used.
    """

    names: Sequence[str] = ()
    encode: Callable[[str], list[int]] = lambda _name: []

    @cached_property
    def ids(self) -> frozenset[int]:
        """The ids of all of them."""
        encoded = (self.encode(name) for name in self.names if name)
        return frozenset(tokens[0] for tokens in encoded if len(tokens) == 1)

    def markup(self, texts: Iterable[str]) -> Markup:
        """The markup of those control tokens that some texts name."""
        given = list(texts)
        ids = {}
        for name in self.names:
            if name and any(name in text for text in given):
                tokens = self.encode(name)
                if len(tokens) == 1:
                    ids[name] = tokens[0]
        return Markup(ids)


class Markup:
    """Writes fixed texts for a grammar and for a parser.

    Args:
        control_tokens: ids of the control tokens by name.
    """

    def __init__(self, control_tokens: Mapping[str, int]) -> None:
        self._ids = {name: token for name, token in control_tokens.items() if name}
        names = sorted(self._ids, key=len, reverse=True)
        self._names = re.compile("|".join(map(re.escape, names))) if names else None

    @property
    def names(self) -> dict[int, str]:
        """The names of the control tokens by their ids."""
        return {token: name for name, token in self._ids.items()}

    def segments(self, text: str) -> list[tuple[str, int | None]]:
        """The parts of a text, each with its id where it is a control token."""
        parts: list[tuple[str, int | None]] = []
        end = 0
        for match in self._names.finditer(text) if self._names is not None else ():
            if match.start() > end:
                parts.append((text[end : match.start()], None))
            parts.append((match[0], self._ids[match[0]]))
            end = match.end()
        if end < len(text):
            parts.append((text[end:], None))
        return parts

    def has_control(self, text: str) -> bool:
        """Whether a control token is in a text."""
        return any(token is not None for _part, token in self.segments(text))

    def shown(self, text: str) -> str:
        """The text as it comes in answers."""
        return "".join(
            part if token is None else f"{CONTROL_OPEN}{part}{CONTROL_CLOSE}"
            for part, token in self.segments(text)
        )

    def lark(self, text: str) -> str:
        """An expression that matches exactly this text."""
        parts = [quoted(part) if token is None else f"<[{token}]>" for part, token in self.segments(text)]
        return " ".join(parts) if parts else '""'


def quoted(text: str) -> str:
    """A string literal of Lark's."""
    # JSON's escapes are Lark's, but Lark wants U+007F escaped as well.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def pattern(text: str) -> str:
    """A text inside a regular expression between slashes."""
    escaped = "".join(
        f"\\{character}" if character in r"\.+*?()|[]{}^$/#&-~" else character for character in text
    )
    return escaped.replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")


def slashed(expression: str) -> str:
    """A regular expression between slashes: those inside are escaped, unless they are already."""
    result, escaped = "", False
    for character in expression:
        if character == "/" and not escaped:
            result += "\\"
        result += {"\n": r"\n", "\r": r"\r"}.get(character, character)
        escaped = character == "\\" and not escaped
    return result


def without_control(text: str) -> str:
    """The text without names of control tokens."""
    return _CONTROL.sub("", text) if CONTROL_OPEN in text or CONTROL_CLOSE in text else text


def with_control(text: str) -> str:
    """The text with names of control tokens as it would be with them written out."""
    return text.replace(CONTROL_OPEN, "").replace(CONTROL_CLOSE, "")


def overlap(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0
