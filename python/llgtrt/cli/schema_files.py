"""Where ``llgtrt check-schema`` finds schemas: files, folders and standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import json5

SUFFIXES = (".json", ".json5", ".jsonl", ".ndjson")
"""What is taken from a folder."""

LINES = (".jsonl", ".ndjson")
"""Files with a schema on each line."""

MOST_BYTES = 64 << 20

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Source:
    """A schema, or why it cannot be read.

    Attributes:
        name: the file, and the line in a file of lines.
        schema: the value.
        problem: set if there is none.
    """

    name: str
    schema: Any = None
    problem: str | None = None


def find_files(paths: list[Path]) -> list[Path]:
    """The files named, and those in the folders named, in order; standard input as it is."""
    files: list[Path] = []
    for path in paths:
        if path != STDIN and path.is_dir():
            inside = (file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
            files += sorted(inside)
        else:
            files.append(path)
    return files


def read_schemas(file: Path) -> Iterator[Source]:
    """The schemas of a file: one, or one on each line that is not blank."""
    name = "<stdin>" if file == STDIN else str(file)
    try:
        text = _read(file)
    except (OSError, ValueError) as error:
        yield Source(name, problem=f"cannot be read: {error}")
        return
    if file.suffix.lower() in LINES:
        yield from _lines(name, text)
        return
    one = _parse(name, text, relaxed=file.suffix.lower() == ".json5")
    if one.problem is not None and file == STDIN and len(text.splitlines()) > 1:
        several = list(_lines(name, text))
        if several and several[0].problem is None:
            yield from several
            return
    yield one


def _read(file: Path) -> str:
    stream = sys.stdin.buffer if file == STDIN else file.open("rb")
    try:
        data = stream.read(MOST_BYTES + 1)
    finally:
        if file != STDIN:
            stream.close()
    if len(data) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES >> 20} MiB")
    return data.decode("utf-8-sig")


def _lines(name: str, text: str) -> Iterator[Source]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _parse(f"{name}:{number}", line, relaxed=False)


def _parse(name: str, text: str, *, relaxed: bool) -> Source:
    try:
        return Source(name, json.loads(text))
    except RecursionError:
        return Source(name, problem="is nested too deeply")
    except ValueError as error:
        if not relaxed:
            return Source(name, problem=f"is not JSON: {error}")
    try:
        return Source(name, json5.loads(text))
    except RecursionError:
        return Source(name, problem="is nested too deeply")
    except ValueError as error:
        return Source(name, problem=f"is not JSON5: {error}")
