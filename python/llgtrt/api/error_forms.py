"""The forms in which the protocols that are served here write an error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pydantic_core import to_json
from starlette.types import Scope


class ErrorForm(ABC):
    """One protocol's form."""

    @abstractmethod
    def body(self, error: dict[str, Any]) -> dict[str, Any]:
        """The JSON object for OpenAI's object."""

    @abstractmethod
    def event(self, body: dict[str, Any]) -> bytes:
        """Server-sent events for an error within a stream, which they end."""


class OpenAiForm(ErrorForm):
    """``{"error": {"message", "type", "param", "code"}}``; a stream ends with ``[DONE]``."""

    def body(self, error: dict[str, Any]) -> dict[str, Any]:
        """The object as it is."""
        return error

    def event(self, body: dict[str, Any]) -> bytes:
        """The error, and the mark that nothing follows."""
        return b"data: " + to_json(body) + b"\n\ndata: [DONE]\n\n"


class TritonForm(ErrorForm):
    """``{"error": MESSAGE}``; a stream just ends."""

    def body(self, error: dict[str, Any]) -> dict[str, Any]:
        """The message alone."""
        return {"error": error["error"]["message"]}

    def event(self, body: dict[str, Any]) -> bytes:
        """The error."""
        return b"data: " + to_json(body) + b"\n\n"


OPENAI = OpenAiForm()
FORMS: dict[str, ErrorForm] = {"/v2": TritonForm()}
"""By the first part of the path; all others have OpenAI's."""


def error_form(scope: Scope) -> ErrorForm:
    """The form of the errors of a request's route."""
    path: str = scope.get("path", "").removeprefix(scope.get("root_path", ""))
    return FORMS.get("/" + path.split("/", 2)[1], OPENAI) if path.startswith("/") else OPENAI
