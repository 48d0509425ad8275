"""Reads and writes JSON of clients without holding the interpreter's lock for long.

The core reads: it parses without the lock, and gives way while it makes Python's objects. The standard
library's encoder is one call into native code: while it runs no other thread does, the event loop's neither.
That is nothing for a few values, and tens of milliseconds for a million. What may hold many is written by
its part in Python instead, which other threads may interrupt between any two values.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import to_json

import llgtrt.load_native  # noqa: F401 (before the native module)
from llgtrt._native import read_json

MAX_VALUES = 500_000
"""Values in a body. A prompt of more tokens, or a schema of more keywords, is beyond other limits anyway."""

MAX_CONTAINERS = 32_768
"""Objects and arrays in a body. Python's garbage collector looks at all of them in one go, and every thread
waits: about 0.1 us for each."""


PIECE_CHARS = 64 * 1024
"""Of a text, that are encoded in one call: some tens of microseconds."""
GROUP_BYTES = 64 * 1024
"""Of a long JSON text, that are handed on in one call."""


def parse_json(body: bytes | bytearray | str) -> Any:
    """The value that a body, or a text in it, holds.

    Raises:
        ValueError: it is not JSON, not UTF-8, holds half of a surrogate pair, NaN or an infinity, is nested
            too deeply or holds too many values.
    """
    return read_json(body, MAX_VALUES, MAX_CONTAINERS)


def json_of(value: Any, **options: Any) -> str:
    """A JSON value as text, characters as they are; ``options`` are those of :func:`json.dumps`.

    Raises:
        ValueError: NaN or an infinity, with ``allow_nan=False``.
    """
    # On the event loop values are small; what comes to another thread is large and must let others run.
    is_small = threading.current_thread() is threading.main_thread()
    encoder = json.JSONEncoder if is_small else _PatientEncoder
    return encoder(**{"ensure_ascii": False, **options}).encode(value)


PART = 32
"""Of a long list, that are written in one call."""
OUTER_LISTS = 3
"""How deep within a response its choices or items are: few, and each may be long."""


def read_own(text: str) -> Any:
    """The value of a JSON text that this server wrote, of any size."""
    return read_json(text, sys.maxsize, sys.maxsize)


class Written(str):
    """A JSON text that :func:`long_json` puts into a longer one as it is."""

    __slots__ = ()


def long_json(value: Any) -> bytes:
    """A value that may hold long lists and texts, as JSON; a part of it at a time, as other threads wait.

    A :class:`Written` may be a member, or an element of a list, that stands within few others.
    """
    return b"".join(_parts(value, 0))


def long_json_parts(value: Any) -> list[bytes]:
    """As :func:`long_json`, in parts: to join them would keep other threads waiting, where they are many."""
    return list(grouped(_parts(value, 0)))


def grouped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts that are worth a call each."""
    group: list[bytes] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part)
        if size >= GROUP_BYTES:
            yield b"".join(group)
            group, size = [], 0
    if group:
        yield b"".join(group)


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    if isinstance(value, dict):
        before = b"{"
        for name, member in value.items():
            yield before + to_json(name) + b":"
            yield from _parts(member, depth + 1)
            before = b","
        yield b"}" if value else b"{}"
    elif isinstance(value, list) and (depth < OUTER_LISTS or len(value) <= PART):
        before = b"["
        for member in value:
            yield before
            yield from _parts(member, depth + 1)
            before = b","
        yield b"]" if value else b"[]"
    elif isinstance(value, list):
        before = b"["
        for start in range(0, len(value), PART):
            yield before + to_json(value[start : start + PART])[1:-1]
            before = b","
        yield b"]"
    elif isinstance(value, Written):
        yield from (piece.encode() for piece in pieces_of(value))
    elif isinstance(value, str) and len(value) > PIECE_CHARS:
        yield text_json(value)
    else:
        yield to_json(value)


def pieces_of(text: str) -> Iterator[str]:
    """A long text in pieces; nothing of an empty one."""
    return (text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS))


def text_json(text: str) -> bytes:
    """A text, which may be long, as JSON."""
    return b'"%b"' % b"".join([to_json(piece)[1:-1] for piece in pieces_of(text)])


class _PatientEncoder(json.JSONEncoder):
    """The standard encoder without its native part, which writes long texts a piece at a time."""

    def encode(self, o: Any) -> str:
        return "".join(self.iterencode(o))

    def iterencode(self, o: Any, _one_shot: bool = False) -> Iterator[str]:
        indent = " " * self.indent if isinstance(self.indent, int) else self.indent
        separators = self.key_separator, self.item_separator, self.sort_keys, self.skipkeys, False
        # The standard library's own, to which its encoder gives the native writer of texts.
        write = json.encoder._make_iterencode(  # type: ignore[attr-defined]
            {}, self.default, self._text, indent, self._number, *separators
        )
        written: Iterator[str] = write(o, 0)
        return written

    def _text(self, text: str) -> str:
        write = json.encoder.encode_basestring_ascii if self.ensure_ascii else json.encoder.encode_basestring
        if len(text) <= PIECE_CHARS:
            return write(text)
        pieces = [write(piece)[1:-1] for piece in pieces_of(text)]
        joined = "".join(pieces)
        # Both quotes in one copy, and the pieces are freed after others had their turn.
        return f'"{joined}"'

    def _number(self, number: float) -> str:
        # The native encoder is for a single value nothing to wait for, and knows what to refuse.
        return json.dumps(number, allow_nan=self.allow_nan)
