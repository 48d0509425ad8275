"""Reads and writes JSON of clients without holding the interpreter's lock for long.

The fast parser and the fast encoder are one call into native code each: while it runs no other thread
does, the event loop's neither. That is nothing for a long text, and tens of milliseconds for a million small
values. What may hold many is read and written by the standard library's parser and encoder in Python instead,
which other threads may interrupt between any two values.
"""

from __future__ import annotations

import codecs
import json
import json.decoder
import json.scanner
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic_core import from_json

MAX_MARKS = 20_000
"""Commas and opening brackets in a text that the fast parser reads: some milliseconds if all are JSON's."""

MAX_VALUES = 500_000
"""Values in a body, apart from null, true and false. A prompt of more tokens, or a schema of more keywords,
is beyond other limits anyway."""

MAX_CONTAINERS = 32_768
"""Objects and arrays in a body. Python's garbage collector looks at all of them in one go, and every thread
waits: about 0.1 us for each."""


def parse_json(body: bytes | bytearray | str) -> Any:
    """The value that a body, or a text in it, holds.

    Raises:
        ValueError: it is not JSON, not UTF-8, holds half of a surrogate pair, NaN or an infinity, is nested
            too deeply or holds too many values.
    """
    if isinstance(body, str):
        marks = sum(map(body.count, ",[{"))
    else:
        # RFC 8259 lets a reader ignore a mark of the byte order, which some clients on Windows send.
        body = body.removeprefix(codecs.BOM_UTF8)
        marks = sum(map(body.count, (b",", b"[", b"{")))
    if marks <= MAX_MARKS:
        return from_json(body, allow_inf_nan=False)
    try:
        return _PatientDecoder().decode(body if isinstance(body, str) else body.decode())
    except RecursionError:
        raise ValueError("recursion limit exceeded") from None


def json_of(value: Any, **options: Any) -> str:
    """A JSON value as text, characters as they are; ``options`` are those of :func:`json.dumps`.

    Raises:
        ValueError: NaN or an infinity, with ``allow_nan=False``.
    """
    # On the event loop values are small; what comes to another thread is large and must let others run.
    is_small = threading.current_thread() is threading.main_thread()
    encoder = json.JSONEncoder if is_small else _PatientEncoder
    return encoder(**{"ensure_ascii": False, **options}).encode(value)


class _PatientEncoder(json.JSONEncoder):
    """The standard encoder without its native part."""

    def encode(self, o: Any) -> str:
        return "".join(self.iterencode(o))


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
        self._values = self._containers = 0
        arrays, strings = self.parse_array, self.parse_string

        def parse_array(*arguments: Any) -> Any:
            self._count_container()
            return arrays(*arguments)

        def parse_string(*arguments: Any) -> tuple[str, int]:
            self._count()
            text, end = strings(*arguments)
            return _whole(text), end

        self.parse_array, self.parse_string = parse_array, parse_string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._count_container()
        return {_whole(key): value for key, value in pairs}

    def _int(self, text: str) -> int:
        self._count()
        return int(text)

    def _float(self, text: str) -> float:
        self._count()
        return float(text)

    def _count_container(self) -> None:
        self._count()
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            raise ValueError(f"more than {MAX_CONTAINERS} objects and arrays")

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
