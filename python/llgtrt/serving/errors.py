"""What a use case raises about a request, before the core has seen it."""

from __future__ import annotations


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


class ModelNotFoundError(RequestError):
    """No model of that name is served here."""

    def __init__(self, name: str, served: str) -> None:
        super().__init__(
            f"The model {quote(name)} does not exist; this server has {quote(served)}.",
            "model",
            "model_not_found",
        )


def quote(value: object, limit: int = 80) -> str:
    """A value of the request inside a message: one line, never long."""
    text = str(value)
    if len(text) > limit:
        text = text[:limit] + "..."
    return "'" + "".join(character if character.isprintable() else "?" for character in text) + "'"
