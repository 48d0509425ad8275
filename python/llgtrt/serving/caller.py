"""Who asks: what of an HTTP request the use cases may know, for hooks."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Caller:
    """An HTTP request.

    Attributes:
        request_id: its id.
        scope: its ASGI scope.
        record: what became known of it so far; ``key`` is the name of its API key.
        answer_headers: headers that its answer gets beside others, by name.
    """

    request_id: str = ""
    scope: Mapping[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    answer_headers: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Its path, as it was sent."""
        return str(self.scope.get("path", ""))

    @property
    def address(self) -> str | None:
        """The client's address."""
        client = self.scope.get("client")
        return client[0] if client else None

    @property
    def key(self) -> str | None:
        """The name of its API key."""
        return self.record.get("key")

    def headers(self) -> dict[str, str]:
        """Its headers by lower-case name; several of one name are joined by commas."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in self.scope.get("headers", ()):
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def note_ignored_tools(self, types: list[str]) -> None:
        """Tells client and log of tools that the model does not get, by their types."""
        if self is not NOBODY:
            self.record["ignored_tools"] = types
            self.answer_headers[IGNORED_TOOLS] = ", ".join(types)


IGNORED_TOOLS = "X-Llgtrt-Ignored-Tools"

NOBODY = Caller()

CALLER: ContextVar[Caller] = ContextVar("caller", default=NOBODY)
"""The request that is being worked on."""
