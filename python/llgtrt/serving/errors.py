"""What a use case raises about a request, before the core has seen it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """What a client is told of an error, before it has the form of an API.

    Attributes:
        status: the HTTP status, also of an error after the headers were sent.
        message: one sentence.
        type: OpenAI's type: ``invalid_request_error``, ``server_error`` or ``constraint_error``.
        param: dotted path of the field, such as ``messages[0].content``.
        code: stable name for programs.
    """

    status: int
    message: str
    type: str
    param: str | None = None
    code: str | None = None

    def openai(self) -> dict[str, Any]:
        """OpenAI's error object."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


class HookError(Exception):
    """The operator's hook refuses a request, fails or takes too long.

    Attributes:
        status: the HTTP status.
        message: one sentence for the client.
        code: stable name for programs.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, code: str, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers)


class RequestError(Exception):
    """The request cannot be served as it is: the client must change it.

    Attributes:
        message: one sentence for the client.
        param: dotted path of the field, such as ``messages[0].content``.
        code: stable name for programs, or ``None``.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class NotFoundError(RequestError):
    """A request names something that is not here, or not any more."""


MOST_NAMED = 20
"""Models that an error names."""


class ModelNotFoundError(RequestError):
    """No model of that name is served here; ``served`` are those that are."""

    def __init__(self, name: str, *served: str) -> None:
        shown = ", ".join(map(quote, served[:MOST_NAMED])) or "none"
        more = f" and {len(served) - MOST_NAMED} more" if len(served) > MOST_NAMED else ""
        super().__init__(
            f"The model {quote(name)} does not exist; this server has {shown}{more}.",
            "model",
            "model_not_found",
        )


def quote(value: object, limit: int = 80) -> str:
    """A value of the request inside a message: one line, never long."""
    text = str(value)
    if len(text) > limit:
        text = text[:limit] + "..."
    return "'" + "".join(character if character.isprintable() else "?" for character in text) + "'"


def printable(text: str, limit: int = 40) -> str:
    """A value of the request in a header or a list: ASCII without blanks, quotes and commas, never long."""
    kept = (c if c.isascii() and c.isprintable() and c not in " ,;\"'" else "?" for c in text[:limit])
    return "".join(kept)
