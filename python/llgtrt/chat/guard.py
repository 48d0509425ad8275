"""Keeps the text of users from being read as control tokens.

A prompt is tokenized as a whole, so the tokenizer cannot tell the ``<|im_start|>`` that the template wrote
from one that a user typed. The guard marks the user's: it puts U+FDD0, a code point that Unicode reserves for
use inside a program, after the first character of the name. The tokenizer of the core keeps marked names as
text and removes the mark.

A template may leave out a part of a text, or put two texts side by side, so that a name comes together that
no text holds. With every character marked that a name begins with, none does: whoever renders a conversation
both ways and counts the names learns of it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

GUARD = "\ufdd0"

PIECE_CHARS = 64 * 1024
"""How much of a text is searched at once."""


class Guard:
    """Marks the names of a fixed set of control tokens."""

    def __init__(self, special_tokens: Iterable[str]) -> None:
        names = {name for name in special_tokens if name}
        self._name = re.compile(_pattern(names)) if names else None
        self._longest = max(map(len, names), default=0)
        self._firsts = sorted({name[0] for name in names})
        self._first = re.compile("|".join(map(re.escape, self._firsts)))

    def protect(self, value: Any) -> Any:
        """A copy of a JSON value, with every control token name in its texts and keys marked."""
        name = self._name
        return value if name is None else _of_texts(partial(_marked, name, self._longest), value)

    def protect_beginnings(self, value: Any) -> Any:
        """A copy of a JSON value, with every character of its texts and keys marked that begins a name."""
        return _of_texts(partial(_marked, self._first, 1), value) if self._firsts else value

    def may_begin(self, value: Any) -> bool:
        """Whether a JSON value holds a character that begins a name."""
        if isinstance(value, str):
            return any(first in value for first in self._firsts)
        if isinstance(value, dict):
            return any(self.may_begin(key) or self.may_begin(item) for key, item in value.items())
        return isinstance(value, list | tuple) and any(map(self.may_begin, value))

    def count(self, text: str) -> int:
        """How many names stand in a text without a mark."""
        return 0 if self._name is None else sum(1 for _ in _found(self._name, self._longest, text))


def _of_texts(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_of_texts(change, key): _of_texts(change, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_of_texts(change, item) for item in value]
    return value


def _found(pattern: re.Pattern[str], longest: int, text: str) -> Iterator[re.Match[str]]:
    """The matches, which look at ``longest`` characters at most."""
    # One search through a long text would keep all other threads waiting for as long as it takes.
    for start in range(0, len(text), PIECE_CHARS):
        end = start + PIECE_CHARS
        # A name that begins in this piece may end in the next one.
        for match in pattern.finditer(text, start, min(end + longest, len(text))):
            if match.start() >= end:
                break
            yield match


def _marked(pattern: re.Pattern[str], longest: int, text: str) -> str:
    """The text with a mark behind every match."""
    if len(text) <= PIECE_CHARS:
        return pattern.sub(rf"\g<0>{GUARD}", text)
    return "".join(_parts(pattern, longest, text))


def _parts(pattern: re.Pattern[str], longest: int, text: str) -> Iterator[str]:
    """Those of the marked text. Each may be a long copy, behind which other threads have their turn."""
    copied = 0
    for match in _found(pattern, longest, text):
        yield text[copied : match.end()]
        yield GUARD
        copied = match.end()
    yield text[copied:]


def remove_guards(text: str) -> str:
    """The text without marks, for people to read."""
    return text.replace(GUARD, "")


def guard(text: str, special_tokens: Iterable[str]) -> str:
    """``text`` with every name of a control token in it marked. For many texts, keep a :class:`Guard`."""
    marked: str = Guard(special_tokens).protect(text)
    return marked


def _pattern(names: set[str]) -> str:
    # What follows the first character is only looked at, so that overlapping names are all found. A search
    # for a first character is fast, and the trie looks at each character once, however many names there are.
    by_first: dict[str, set[str]] = {}
    for name in names:
        by_first.setdefault(name[0], set()).add(name[1:])
    return "|".join(f"{re.escape(first)}(?={_trie(rests)})" for first, rests in sorted(by_first.items()))


def _trie(words: set[str]) -> str:
    """A regular expression that matches any of the words, without backtracking over common prefixes."""
    if "" in words:
        return ""
    by_first: dict[str, set[str]] = {}
    for word in words:
        by_first.setdefault(word[0], set()).add(word[1:])
    branches = [f"{re.escape(first)}{_trie(rests)}" for first, rests in sorted(by_first.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
