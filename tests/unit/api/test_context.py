"""What surrounds every request, without a server."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from llgtrt.api.context import RequestContextMiddleware
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.record import GENERATION


class Answer:
    """What a request makes, and nobody needs after it."""


class Connection:
    """As in uvicorn: it holds the scope of its last request, and the scope reaches it."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "headers": [],
            "extensions": {"llgtrt.abort": self.abort},
        }

    async def send(self, message: Message) -> None:
        """Takes a message of the application."""

    async def receive(self) -> Message:
        """Nothing more comes from the client."""
        return {"type": "http.disconnect"}

    def abort(self) -> None:
        """Ends the connection."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collections")
async def test_what_a_request_held_is_free_without_a_collection() -> None:
    kept: list[weakref.ref[Any]] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        scope[GENERATION] = Answer()
        kept.append(weakref.ref(scope[GENERATION]))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(middleware: RequestContextMiddleware) -> Connection:
        connection = Connection()
        await middleware(connection.scope, connection.receive, connection.send)
        kept.append(weakref.ref(connection))
        return connection

    open_one = await ask(RequestContextMiddleware(application, HttpMetrics(), log_requests=False))
    assert open_one.scope["path"]
    assert kept[0]() is None, "an open connection holds the answer of its last request"
    del open_one
    assert kept[1]() is None, "a connection that is gone waits for the garbage collection"
