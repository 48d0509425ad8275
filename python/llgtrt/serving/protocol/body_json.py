"""Reads the JSON of a body without holding the interpreter's lock for long.

The fast parser is one call into native code: while it runs no other thread does, the event loop's neither.
That is nothing for a long text, and tens of milliseconds for a million small values. A body that may hold
many is read by the standard library's parser in Python instead, which other threads may interrupt between any
two values.
"""

from __future__ import annotations

import codecs
import json.decoder
import json.scanner
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic_core import from_json

MAX_SEPARATORS = 20_000
"""Commas in a body that the fast parser reads: about a millisecond where each stands between two values."""

MAX_VALUES = 500_000
"""Values in a body, apart from null, true and false. A prompt of more tokens, or a schema of more keywords,
is beyond other limits anyway."""


def parse_json(body: bytes | bytearray) -> Any:
    """The value that a body holds.

    Raises:
        ValueError: it is not JSON, not UTF-8, holds half of a surrogate pair, NaN or an infinity, is nested
            too deeply or holds too many values.
    """
    # RFC 8259 lets a reader ignore a mark of the byte order, which some clients on Windows send.
    body = body.removeprefix(codecs.BOM_UTF8)
    if body.count(b",") <= MAX_SEPARATORS:
        return from_json(body, allow_inf_nan=False)
    try:
        return _PatientDecoder().decode(body.decode())
    except RecursionError:
        raise ValueError("recursion limit exceeded") from None


class _PatientDecoder(json.decoder.JSONDecoder):
    """The standard decoder with the scanner that is written in Python."""

    parse_array: Callable[..., Any]
    parse_string: Callable[..., tuple[str, int]]

    def __init__(self) -> None:
        super().__init__(
            parse_int=self._int,
            parse_float=self._float,
            parse_constant=_no_constant,
            object_pairs_hook=self._object,
        )
        self._values = 0
        arrays, strings = self.parse_array, self.parse_string

        def parse_array(*arguments: Any) -> Any:
            self._count()
            return arrays(*arguments)

        def parse_string(*arguments: Any) -> tuple[str, int]:
            self._count()
            text, end = strings(*arguments)
            return _whole(text), end

        self.parse_array, self.parse_string = parse_array, parse_string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._count()
        return {_whole(key): value for key, value in pairs}

    def _int(self, text: str) -> int:
        self._count()
        return int(text)

    def _float(self, text: str) -> float:
        self._count()
        return float(text)

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values")


def _whole(text: str) -> str:
    """The text, unless it holds half of a surrogate pair, which the standard parser takes."""
    if not text.isascii():
        text.encode()
    return text


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
