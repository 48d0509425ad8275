r"""GBNF, the grammars of llama.cpp, as Lark grammars in llguidance's dialect.

The EBNF of xgrammar (vLLM, SGLang) is nearly the same and read too. Not read are look-ahead and references to
tokens: they have no counterpart.

A grammar without recursion becomes terminals, which one automaton matches: exactly the language that was
written. In a recursive one every character class is a terminal of its own, so that no repetition swallows
what should follow it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

MAX_NESTING = 64
MAX_CODE_POINT = 0x10FFFF

_RULE = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_-]*)\s*::=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SPACE = re.compile(r"(?:\s|#[^\n]*)+")
_BOUNDS = re.compile(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}")
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPES = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "f": "\f",
    "b": "\b",
    "v": "\v",
    "a": "\a",
    "e": "\x1b",
    "0": "\0",
}
_ROOTS = ("root", "start")


class GbnfError(ValueError):
    """The text is not a grammar that can be converted; the message says where."""


@dataclass(frozen=True, slots=True)
class Literal:
    text: str


@dataclass(frozen=True, slots=True)
class CharacterClass:
    ranges: tuple[tuple[int, int], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Reference:
    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    least: int
    most: int | None


Node: TypeAlias = "Literal | CharacterClass | Reference | Sequence | Choice | Repeat"


def is_gbnf(text: str) -> bool:
    """Whether a grammar defines its rules with ``::=``."""
    return any(_RULE.match(line) for line in text.splitlines())


def gbnf_to_lark(text: str) -> str:
    """The Lark grammar of the same language.

    Raises:
        GbnfError: the text cannot be read, or uses what Lark does not have.
    """
    rules = _Parser(text).rules()
    root = next((name for name in _ROOTS if name in rules), None)
    if root is None:
        raise GbnfError("there is no rule named root")
    used = _reachable(rules, root)
    as_terminals = not _is_recursive(rules, used)
    names = _lark_names(used, as_terminals)
    lines = [f"start: {names[root]}"]
    lines += [f"{names[name]}: {_text(rules[name], names)}" for name in used]
    return "\n".join(lines) + "\n"


class _Parser:
    """A cursor over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip()
        while self._at < len(self._text):
            match = _RULE.match(self._text, self._at)
            if match is None:
                raise self._error("expected NAME ::=")
            name = match[1]
            if name in rules:
                raise self._error(f"a second rule named {name}")
            self._at = match.end()
            rules[name] = self._choice(0)
        return rules

    def _choice(self, depth: int) -> Node:
        if depth > MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} parentheses inside each other")
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while True:
            self._skip()
            item = self._item(depth)
            if item is None:
                return items[0] if len(items) == 1 else Sequence(tuple(items))
            items.append(self._repeated(item))

    def _item(self, depth: int) -> Node | None:
        text, at = self._text, self._at
        if at == len(text) or text[at] in "|)" or _RULE.match(text, at):
            return None
        character = text[at]
        if character in "\"'":
            return self._literal(character)
        if character == "[":
            return self._class()
        self._at += 1
        if character == ".":
            return CharacterClass((), negated=True)
        if character == "(":
            if self._text.startswith("=", self._at):
                raise self._error("look-ahead is not supported")
            item = self._choice(depth + 1)
            if not self._take(")"):
                raise self._error("a parenthesis is not closed")
            return item
        self._at = at
        if character in "<!":
            raise self._error("references to tokens are not supported")
        match = _NAME.match(text, at)
        if match is None:
            raise self._error(f"unexpected {character!r}")
        self._at = match.end()
        return Reference(match[0])

    def _repeated(self, item: Node) -> Node:
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in "*+?":
                self._at += 1
                item = Repeat(item, int(character == "+"), 1 if character == "?" else None)
            elif character == "{":
                match = _BOUNDS.match(self._text, self._at)
                if match is None:
                    raise self._error("expected {n}, {n,} or {n,m}")
                least, comma, most = match.groups()
                self._at = match.end()
                top = int(least) if comma is None else None if most is None else int(most)
                if top is not None and top < int(least):
                    raise self._error("a repetition of fewer than it needs")
                item = Repeat(item, int(least), top)
            else:
                break
        return item

    def _literal(self, quote: str) -> Node:
        self._at += 1
        text = ""
        while not self._text.startswith(quote, self._at):
            text += chr(self._code_point("a text"))
        self._at += 1
        return Literal(text)

    def _class(self) -> Node:
        self._at += 1
        negated = self._text.startswith("^", self._at)
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while not self._text.startswith("]", self._at):
            first = last = self._code_point("a character class")
            rest = self._text[self._at : self._at + 2]
            if rest[:1] == "-" and rest != "-]":
                self._at += 1
                last = self._code_point("a character class")
            if last < first:
                raise self._error("a range that ends before it begins")
            ranges.append((first, last))
        self._at += 1
        if not ranges and not negated:
            raise self._error("an empty character class")
        return CharacterClass(tuple(ranges), negated)

    def _code_point(self, where: str) -> int:
        text, at = self._text, self._at
        if at >= len(text) or text[at] == "\n":
            raise self._error(f"{where} is not closed")
        self._at += 1
        if text[at] != "\\":
            return ord(text[at])
        if at + 1 >= len(text):
            raise self._error(f"{where} is not closed")
        escape = text[at + 1]
        self._at += 1
        if escape not in _HEX:
            return ord(_ESCAPES.get(escape, escape))
        digits = text[at + 2 : at + 2 + _HEX[escape]]
        if len(digits) < _HEX[escape] or not re.fullmatch("[0-9A-Fa-f]+", digits):
            raise self._error(f"\\{escape} needs {_HEX[escape]} hexadecimal digits")
        self._at += len(digits)
        value = int(digits, 16)
        if value > MAX_CODE_POINT or 0xD800 <= value <= 0xDFFF:
            raise self._error(f"\\{escape}{digits} is not a character")
        return value

    def _take(self, character: str) -> bool:
        self._skip()
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _error(self, message: str) -> GbnfError:
        return GbnfError(f"line {self._text.count(chr(10), 0, self._at) + 1}: {message}")


def _references(node: Node) -> Iterator[str]:
    match node:
        case Reference(name):
            yield name
        case Sequence(items) | Choice(items):
            for item in items:
                yield from _references(item)
        case Repeat(item, _, _):
            yield from _references(item)


def _reachable(rules: dict[str, Node], root: str) -> list[str]:
    """The rules that the root needs, itself first."""
    used = [root]
    seen = {root}
    for name in used:
        for other in _references(rules[name]):
            if other not in rules:
                raise GbnfError(f"rule {name} names {other}, which is not defined")
            if other not in seen:
                seen.add(other)
                used.append(other)
    return used


def _is_recursive(rules: dict[str, Node], used: list[str]) -> bool:
    """Whether some rule needs itself: no order exists in which each comes after those it names."""
    users: dict[str, list[str]] = {name: [] for name in used}
    waiting: dict[str, int] = {}
    for name in used:
        names = set(_references(rules[name]))
        waiting[name] = len(names)
        for other in names:
            users[other].append(name)
    ready = [name for name in used if waiting[name] == 0]
    for name in ready:
        for user in users[name]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    return len(ready) < len(used)


def _lark_names(used: list[str], as_terminals: bool) -> dict[str, str]:
    """A name in Lark for each rule: upper case means a terminal there, and ``-`` has no place in a name."""
    prefix = "T" if as_terminals else "r"
    plain = {name: re.sub("[^a-z0-9]", "_", name.lower()) for name in used}
    names = {name: f"{prefix}{index}_{text}" for index, (name, text) in enumerate(plain.items())}
    return {name: text.upper() for name, text in names.items()} if as_terminals else names


def _text(node: Node, names: dict[str, str], inside: bool = False) -> str:
    """A node in Lark; in parentheses where ``inside`` of a sequence or a repetition it needs them."""
    match node:
        case Literal(text):
            return json.dumps(text, ensure_ascii=False)
        case CharacterClass(ranges, negated):
            return _class_text(ranges, negated)
        case Reference(name):
            return names[name]
        case Repeat(item, least, most):
            bounds = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
            if bounds is None:
                bounds = f"{{{least},{'' if most is None else most}}}"
            return f"({_text(item, names)}){bounds}"
        case Sequence(items):
            parts = " ".join(_text(item, names, inside=True) for item in items) or '""'
        case Choice(items):
            parts = " | ".join(_text(item, names) for item in items)
    return f"({parts})" if inside else parts


def _class_text(ranges: tuple[tuple[int, int], ...], negated: bool) -> str:
    if not ranges:
        return r"/(?s:.)/"
    parts = [_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in ranges]
    return f"/[{'^' if negated else ''}{''.join(parts)}]/"


def _code(point: int) -> str:
    character = chr(point)
    return character if character.isascii() and character.isalnum() else f"\\x{{{point:X}}}"
