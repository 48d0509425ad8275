"""Reads values from the metadata of a GGUF file, without loading the model."""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from .errors import ConfigError

_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_FIXED_SIZES = {kind: struct.calcsize(code) for kind, code in _FIXED.items()}
_INTEGERS = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
_SIGNED = frozenset({1, 3, 5, 11})
_STRING = 8
_ARRAY = 9


def read_text_value(path: Path, key: str) -> str | None:
    """The text stored under a metadata key, ``None`` if there is none.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """
    with _metadata(path) as metadata:
        return metadata.text(key)


def read_numbers(path: Path, suffixes: frozenset[str]) -> dict[str, int | list[int]]:
    """The whole numbers, or lists of them, stored under keys ``ARCHITECTURE.SUFFIX``, by suffix.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """
    with _metadata(path) as metadata:
        return metadata.numbers(suffixes)


def read_values(path: Path, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """The values of all metadata keys that begin with one of the prefixes; arrays are lists.

    Raises:
        ConfigError: the file cannot be read or is damaged.
    """
    with _metadata(path) as metadata:
        return metadata.values(prefixes)


@contextmanager
def _metadata(path: Path) -> Iterator["_Metadata"]:
    try:
        with path.open("rb") as stream:
            yield _Metadata(stream)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (struct.error, ValueError) as error:
        raise ConfigError(f"{path} is not a complete GGUF file") from error


class _Metadata:
    """A cursor over the key-value pairs at the start of a GGUF file."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size

    def text(self, key: str) -> str | None:
        for name, kind in self._keys():
            if name == key.encode():
                return self._string().decode("utf-8", errors="replace") if kind == _STRING else None
            self._skip(kind)
        return None

    def numbers(self, suffixes: frozenset[str]) -> dict[str, int | list[int]]:
        found: dict[str, int | list[int]] = {}
        for name, kind in self._keys():
            suffix = name.decode("utf-8", errors="replace").partition(".")[2]
            if suffix not in suffixes:
                self._skip(kind)
            elif kind in _INTEGERS:
                found[suffix] = self._integer(kind)
            elif kind == _ARRAY:
                (item_kind,) = struct.unpack("<I", self._stream.read(4))
                count = self._length()
                if item_kind not in _INTEGERS:
                    raise ValueError("not a list of whole numbers")
                found[suffix] = [self._integer(item_kind) for _ in range(count)]
            else:
                self._skip(kind)
        return found

    def values(self, prefixes: tuple[str, ...]) -> dict[str, Any]:
        found = {}
        for name, kind in self._keys():
            text = name.decode("utf-8", errors="replace")
            if text.startswith(prefixes):
                found[text] = self._value(kind)
            else:
                self._skip(kind)
        return found

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string().decode("utf-8", errors="replace")
        if kind != _ARRAY:
            code = _FIXED[kind] if kind in _FIXED else _unknown(kind)
            return struct.unpack(f"<{code}", self._stream.read(_FIXED_SIZES[kind]))[0]
        (item_kind,) = struct.unpack("<I", self._stream.read(4))
        count = self._length()
        if item_kind not in _FIXED:
            return [self._value(item_kind) for _ in range(count)]
        size = count * _FIXED_SIZES[item_kind]
        return list(struct.unpack(f"<{count}{_FIXED[item_kind]}", self._stream.read(size)))

    def _keys(self) -> Iterator[tuple[bytes, int]]:
        """The keys with the kinds of their values; who gets one reads its value, or skips it."""
        if self._stream.read(4) != b"GGUF":
            raise ValueError("no GGUF file")
        _version, _tensors, pairs = struct.unpack("<IQQ", self._stream.read(20))
        for _ in range(pairs):
            name = self._string()
            (kind,) = struct.unpack("<I", self._stream.read(4))
            yield name, kind

    def _integer(self, kind: int) -> int:
        return int.from_bytes(self._stream.read(_FIXED_SIZES[kind]), "little", signed=kind in _SIGNED)

    def _string(self) -> bytes:
        length = self._length()
        return self._stream.read(length)

    def _length(self) -> int:
        (length,) = struct.unpack("<Q", self._stream.read(8))
        if length > self._size:
            raise ValueError("longer than the file")
        return int(length)

    def _skip(self, kind: int) -> None:
        if kind == _STRING:
            self._stream.seek(self._length(), os.SEEK_CUR)
        elif kind != _ARRAY:
            self._stream.seek(_FIXED_SIZES[kind] if kind in _FIXED_SIZES else _unknown(kind), os.SEEK_CUR)
        else:
            (item_kind,) = struct.unpack("<I", self._stream.read(4))
            count = self._length()
            if item_kind in _FIXED_SIZES:
                self._stream.seek(_FIXED_SIZES[item_kind] * count, os.SEEK_CUR)
            elif item_kind == _STRING:
                for _ in range(count):
                    self._stream.seek(self._length(), os.SEEK_CUR)
            else:
                _unknown(item_kind)


def _unknown(kind: int) -> NoReturn:
    raise ValueError(f"unknown value type {kind}")
