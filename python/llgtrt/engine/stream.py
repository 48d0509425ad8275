"""The output of one request, awaited on the event loop.

A chunk costs one call into the core and, where the consumer is ahead of the engine, one future: there is no
queue and no task here. The core merges what a slow consumer has not taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from llgtrt._native import Delta, RequestHandle, Summary, Unsent

Payload: TypeAlias = "bytes | Delta"
"""Server-sent events, ready to write; or a :class:`Delta` where the request asked for one or failed."""


MOST_PIPED = 2
"""Payloads that go to an outlet in one turn of the loop. An answer that comes faster than it is written must
not keep the loop: what follows is the consumer's."""


class Outlet(Protocol):
    """Writes parts of a response's body to its connection, without a coroutine."""

    def write(self, body: bytes) -> bool:
        """Writes a part at once, or returns false and writes nothing."""

    def write_rest(self, data: bytes) -> None:
        """Writes the end of what was begun on the socket, as it is."""

    def socket(self) -> int | None:
        """Descriptor of a socket that parts may be written to as chunks of HTTP/1.1; ``None`` where something
        waits to be written before them, or they would need another form."""


class Tap(Protocol):
    """Sees the payloads of a stream on their way to its consumer, on the event loop."""

    async def passes(self, payload: Payload, last: bool) -> Payload:
        """What the consumer gets for a payload. What it raises, the consumer sees."""

    def ended(self, error: Exception | None) -> None:
        """The request was cancelled, or failed with what :meth:`Stream.fail` was given."""


class StreamCancelledError(Exception):
    """The request was cancelled on this side: the client left, or it read too slowly."""


class Stream:
    """Payloads of one request, in order. One consumer at a time.

    Attributes:
        finished: the last payload was returned, or the request was cancelled.
        summary: what the core knows of the request; ``None`` until then.
        submitted: when it was submitted, in nanoseconds since the epoch.
    """

    __slots__ = (
        "_error",
        "_forget",
        "_handle",
        "_loop",
        "_outlet",
        "_piped",
        "_ready",
        "_sink",
        "_tap",
        "_waiter",
        "finished",
        "id",
        "submitted",
        "summary",
    )

    def __init__(
        self, handle: RequestHandle, loop: asyncio.AbstractEventLoop, forget: Callable[[int], object]
    ) -> None:
        self.id = handle.id
        self.finished = False
        self.summary: Summary | None = None
        self.submitted = time.time_ns()
        self._handle: RequestHandle | None = handle
        self._loop = loop
        self._forget = forget
        self._waiter: asyncio.Future[tuple[Payload | None, bool]] | None = None
        self._ready: tuple[Payload | None, bool] | None = None
        self._error: Exception | None = None
        self._sink: Callable[[Any], bool] | None = None
        self._outlet: Outlet | None = None
        self._piped: type[Any] = bytes
        self._tap: Tap | None = None

    async def next(self) -> Payload | None:
        """The next payload, or ``None`` after :meth:`wake`.

        Raises:
            StreamCancelledError: :meth:`cancel` was called, also while waiting here.
            Exception: what :meth:`fail` was given.
        """
        item = self._ready
        if item is not None:
            self._ready = None
        else:
            handle = self._handle
            if handle is None:
                raise self._error or StreamCancelledError
            item = handle.take()
            if item is None:
                waiter = self._waiter = self._loop.create_future()
                try:
                    item = await waiter
                except asyncio.CancelledError:
                    self.cancel()
                    raise
                finally:
                    # An exception that it has leads back to this frame.
                    del waiter
        payload, last = item
        if last:
            self._finish()
        if self._tap is not None and payload is not None:
            payload = await self._tap.passes(payload, last)
        return payload

    async def result(self) -> Delta:
        """The only payload of a request with ``output="final"``.

        Raises:
            LlgtrtError: the request failed.
            StreamCancelledError: it was cancelled.
        """
        while not self.finished:
            payload = await self.next()
            if payload is None:
                continue
            if isinstance(payload, bytes):
                raise TypeError("result() needs a request with output='final'")
            if payload.error is not None:
                raise payload.error
            return payload
        raise self._error or StreamCancelledError

    @property
    def waits(self) -> bool:
        """Whether :meth:`next` waits for a payload."""
        return self._waiter is not None and not self._waiter.done()

    def watch(self, tap: Tap) -> None:
        """Has all payloads go through a tap; before the first is taken. Not together with :meth:`pipe`."""
        self._tap = tap

    def pipe(self, outlet: Outlet) -> None:
        """Hands later bytes straight to ``outlet`` while :meth:`next` waits: no task switch per chunk, and
        where there is a socket neither Python nor the event loop.

        What the outlet refuses, the last payload and errors still come from :meth:`next`.
        """
        self._sink, self._outlet = self._write, outlet

    def pipe_deltas(self, sink: Callable[[Delta], bool]) -> None:
        """As :meth:`pipe`, of a request with ``output="deltas"``."""
        self._sink, self._piped = sink, Delta

    def stop_writing(self) -> None:
        """To be called before something else is written to the connection of :meth:`pipe`."""
        if self._outlet is not None and self._handle is not None:
            rest = self._handle.stop_writing()
            if rest:
                self._outlet.write_rest(rest)

    @property
    def written_ago_s(self) -> float | None:
        """Seconds since something was written to the socket of :meth:`pipe`, if bytes go there now."""
        return None if self._outlet is None or self._handle is None else self._handle.written_ago_s()

    def wake(self) -> None:
        """Makes a waiting :meth:`next` return ``None``; without a waiter it does nothing."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self._waiter = None
            waiter.set_result((None, False))

    def cancel(self) -> None:
        """Ends the request and frees its place at once. Idempotent."""
        self._close(None)

    def fail(self, error: Exception) -> None:
        """Ends the request; the consumer sees ``error``. Without effect on a finished one."""
        self._close(error)

    def deliver(self, payload: Payload | Unsent, last: bool) -> None:
        """Hands over what ``drain`` returned for this request."""
        waiter = self._waiter
        if isinstance(payload, Unsent):
            if self._outlet is None or self._handle is None:
                return
            self._outlet.write_rest(payload.data)
            item = self._handle.take() if waiter is not None and not waiter.done() else None
            if item is None:
                return
            payload, last = item
        if waiter is not None and not waiter.done():
            sink = self._sink
            if sink is not None:
                for _ in range(MOST_PIPED):
                    if last or type(payload) is not self._piped or not sink(payload):
                        break
                    item = self._handle.take() if self._handle is not None else None
                    if item is None:
                        return
                    payload, last = item
            self._waiter = None
            waiter.set_result((payload, last))
        elif self._handle is not None:
            self._ready = (payload, last)

    def _write(self, body: bytes) -> bool:
        outlet, handle = self._outlet, self._handle
        if outlet is None or handle is None:
            return False
        socket = outlet.socket()
        if socket is None:
            return outlet.write(body)
        try:
            rest = handle.write_to(socket, body)
        except OSError:
            # There are too many open files: the next chunk would find that, too.
            self._sink = outlet.write
            return outlet.write(body)
        if rest:
            outlet.write_rest(rest)
        return True

    def _finish(self) -> None:
        self.finished = True
        if self._handle is not None:
            self.summary = self._handle.summary()
        self._handle = None
        # They lead back here: this and the connection would wait for a garbage collection.
        self._sink = self._outlet = None
        self._forget(self.id)

    def _close(self, error: Exception | None) -> None:
        handle = self._handle
        if handle is None:
            return
        # An error is told on the same connection.
        self.stop_writing()
        handle.cancel()
        self._finish()
        self._ready = None
        self._error = error
        if self._tap is not None:
            self._tap.ended(error)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            self._waiter = None
            waiter.set_exception(error or StreamCancelledError())
