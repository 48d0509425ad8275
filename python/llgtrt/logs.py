"""The log on standard error: lines of text or of JSON, like the core's (``rust/llgtrt-py/src/log.rs``).

A line holds when, how severe, who, and what; then the fields of ``extra={"fields": {...}}``, and the id of
the HTTP request that it belongs to. Imports nothing else of this package.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from logging.handlers import MemoryHandler
from typing import Any, Literal

MOST_HELD = 10_000

LogFormat = Literal["text", "json"]

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

CORE = "llgtrt.core"
"""What the core's lines are named: ``llgtrt.core.grammar`` is the crate ``llgtrt_grammar``."""

_PART = re.compile(r"[A-Za-z0-9_.]+")

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What could end a line, command a terminal, or change the order in which a line is read."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class Levels:
    """From which level on is logged: by default, and by parts, which are names of loggers."""

    base: str = "info"
    parts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Levels:
        """Reads ``info,llgtrt.core.grammar=debug``.

        Raises:
            ValueError: a level or a name is none.
        """
        base, parts = "info", {}
        for index, item in enumerate(one.strip() for one in text.split(",")):
            name, equals, level = item.rpartition("=")
            if level not in LEVELS:
                raise ValueError(f"{level!r} is no level: debug, info, warning or error")
            if equals:
                if not _PART.fullmatch(name):
                    raise ValueError(f"{name!r} is no name of a part, such as llgtrt.core.grammar")
                parts[name] = level
            elif index == 0:
                base = level
            else:
                raise ValueError(f"{level!r}: only the first level is without a name")
        return cls(base, parts)

    def __str__(self) -> str:
        return ",".join([self.base, *(f"{name}={level}" for name, level in self.parts.items())])

    def core(self) -> str:
        """The same for the core, whose filter goes by the beginnings of modules' names."""

        def directive(level: str) -> str:
            return "warn" if level == "warning" else level

        directives = [directive(self.base)]
        for name, level in self.parts.items():
            own = name == CORE or name.startswith(CORE + ".")
            if own or name in ("llgtrt", "llama_cpp"):
                module = "llgtrt_" + name.removeprefix(CORE).lstrip(".").replace(".", "::") if own else name
                directives.append(f"{module}={directive(level)}")
        return ",".join(directives)

    def apply(self) -> None:
        """Sets the levels of Python's loggers."""
        logging.getLogger().setLevel(LEVELS[self.base])
        for name, level in self.parts.items():
            logging.getLogger(name).setLevel(LEVELS[level])


REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the HTTP request that is being worked on, also in the threads that its task waits for."""


def set_up(level: int, form: LogFormat = "text") -> None:
    """Sends log lines from ``level`` up to standard error; standard output is for what is asked for."""
    held = [
        record
        for handler in logging.getLogger().handlers
        if isinstance(handler, MemoryHandler)
        for record in handler.buffer
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for record in held:
        handler.handle(record)


def hold(level: int) -> None:
    """Keeps log lines until :meth:`set_up`: what is configured says in which form they are written."""
    handler = MemoryHandler(capacity=MOST_HELD, flushLevel=logging.CRITICAL + 1)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class TextFormatter(logging.Formatter):
    """``TIME LEVEL LOGGER: MESSAGE name=value ...``, and a traceback on indented lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """The line without a traceback."""
        fields = "".join(f" {name}={_text(value)}" for name, value in _fields(record).items())
        return f"{_time(record)} {record.levelname} {record.name}: {escaped(record.message)}{fields}"

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's name)
        """A traceback: an error's message may be a client's text, and begins no line of the log."""
        return "\n".join("  " + escaped(line) for line in super().formatException(ei).split("\n"))


class JsonFormatter(logging.Formatter):
    """An object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        members: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return escaped(json.dumps(members, ensure_ascii=False, default=str))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = dict(getattr(record, "fields", {}))
    request_id = REQUEST_ID.get()
    if request_id is not None:
        fields["request_id"] = request_id
    return fields


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(value: object) -> str:
    """A value on the line: in quotes where it would not be one word."""
    if isinstance(value, float):
        return f"{value:g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    plain = text.isascii() and text.isprintable() and not set(text) & set(" =\"'")
    return text if plain and text else escaped(json.dumps(text))


def escaped(text: str) -> str:
    """A text on one line, with what a terminal or a reader of lines acts on written as JSON writes it."""
    return _UNSAFE.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04x}"), text)
