"""Keeps the text of users from being read as control tokens.

A prompt is tokenized as a whole, so the tokenizer cannot tell the ``<|im_start|>`` that the template wrote
from one that a user typed. The guard marks the user's: it puts U+FDD0, a code point that Unicode reserves for
use inside a program, after the first character of the name. The tokenizer of the core keeps marked names as
text and removes the mark.
"""

import re
from collections.abc import Iterable
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

    def protect(self, value: Any) -> Any:
        """A copy of a JSON value, with every control token name in its texts and keys marked."""
        if isinstance(value, str):
            return value if self._name is None else self._marked(value)
        if isinstance(value, dict):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def _marked(self, text: str) -> str:
        name = self._name
        if name is None:
            return text
        if len(text) <= PIECE_CHARS:
            return name.sub(rf"\g<0>{GUARD}", text)
        # One search through a long text would keep all other threads waiting for as long as it takes.
        pieces: list[str] = []
        copied = 0
        for start in range(0, len(text), PIECE_CHARS):
            end = start + PIECE_CHARS
            # A name that begins in this piece may end in the next one.
            for match in name.finditer(text, start, min(end + self._longest, len(text))):
                if match.start() >= end:
                    break
                pieces += (text[copied : match.end()], GUARD)
                copied = match.end()
        pieces.append(text[copied:])
        return "".join(pieces)


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
