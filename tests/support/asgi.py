"""Drives an ASGI application message by message: what a client in a test does, step by step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from starlette.types import ASGIApp, Message, Scope


class AsgiCall:
    """One request. The response's messages are in ``messages`` as the application sends them.

    ``reading`` is what a client does not do that reads nothing: while it is cleared, ``send`` blocks.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Iterable[tuple[str, str]] = (),
        chunks: Iterable[bytes] | None = None,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.messages: list[Message] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._incoming = list(chunks) if chunks is not None else [data]
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            "client": ("test", 1),
            "server": ("test", 80),
            "extensions": extensions or {},
        }
        self.task = asyncio.ensure_future(app(self._scope, self._receive, self._send))

    async def __aenter__(self) -> AsgiCall:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()
        self.reading.set()
        await asyncio.wait([self.task], timeout=5)
        assert self.task.done(), "the application does not end"

    def disconnect(self) -> None:
        """The client leaves."""
        self._gone.set()

    async def done(self) -> AsgiCall:
        """Waits for the end of the request."""
        await asyncio.wait_for(asyncio.shield(self.task), 10)
        return self

    async def until(self, count: int) -> None:
        """Waits until the application has sent this many messages."""
        while len(self.messages) < count:
            assert not self.task.done(), self.messages
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)

    @property
    def started(self) -> bool:
        return bool(self.messages)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def complete(self) -> bool:
        return len(self.messages) > 1 and not self.messages[-1].get("more_body", False)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The error object; fails if its form is not OpenAI's."""
        body = self.json()
        assert set(body) == {"error"}, body
        assert set(body["error"]) == {"message", "type", "param", "code"}, body
        return body["error"]

    async def _receive(self) -> Message:
        if self._incoming:
            return {
                "type": "http.request",
                "body": self._incoming.pop(0),
                "more_body": bool(self._incoming),
            }
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reading.wait()
        self.messages.append(message)
        self._changed.set()
