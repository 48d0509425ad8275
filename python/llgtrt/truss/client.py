"""The client of a request, as a model's code and the engine see it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from starlette.requests import Request
from starlette.types import Message, Scope

from llgtrt.hooks.user_loop import UserLoop

CLIENT = "llgtrt.client"
"""Key of a request's scope."""

CURRENT_CLIENT: ContextVar[Client | None] = ContextVar("truss_client", default=None)
"""The client that a model's code works for, where it does not say."""


class Client:
    """Whether a client still waits, and what ends when it does not.

    :meth:`leave`, :meth:`hold` and :meth:`release` are for the server's loop.
    """

    def __init__(self, loop: UserLoop) -> None:
        self.left = False
        self._loop = loop
        self._gone = asyncio.Event()
        self._cancels: set[Callable[[], object]] = set()
        self._watchers: set[threading.Event] = set()

    def hold(self, cancel: Callable[[], object]) -> None:
        """Has something called when the client leaves."""
        self._cancels.add(cancel)

    def release(self, cancel: Callable[[], object]) -> None:
        """Undoes :meth:`hold`."""
        self._cancels.discard(cancel)

    def leave(self) -> None:
        """The client has left: generations for it end, and the model may learn of it."""
        self.left = True
        for cancel in list(self._cancels):
            cancel()
        for watcher in list(self._watchers):
            watcher.set()
        with contextlib.suppress(RuntimeError):  # The loop is closed: the server ends.
            self._loop.call_soon(self._gone.set)

    def request(self, scope: Scope, body: bytes) -> Request:
        """The request for the model's code; its body has been read."""
        # Without send: responses are not sent through it.
        request = Request({**scope, CLIENT: self}, self.receive)
        request._body = body  # where starlette itself keeps a body that was read
        request.state.watch_disconnect = self._watch
        return request

    async def wait_gone(self) -> None:
        """Waits on the model's loop until the client leaves."""
        await self._gone.wait()

    async def receive(self) -> Message:
        """What a request whose body was read receives: nothing, until its client leaves."""
        await self._gone.wait()
        return {"type": "http.disconnect"}

    @contextlib.contextmanager
    def _watch(self) -> Iterator[threading.Event]:
        """``with request.state.watch_disconnect() as gone``: an event for code that runs on a thread."""
        watcher = threading.Event()
        self._watchers.add(watcher)
        if self.left:
            watcher.set()
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)


def client_of(request: object) -> Client | None:
    """The client of a request; without one, that of the request that is being worked on."""
    scope = getattr(request, "scope", None)
    client = scope.get(CLIENT) if isinstance(scope, dict) else None
    return client if isinstance(client, Client) else CURRENT_CLIENT.get()
