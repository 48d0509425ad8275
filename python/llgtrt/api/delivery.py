"""Sends the output of a generation to its client: one JSON object, or server-sent events.

Both forms watch the connection: when the client leaves, the generation is cancelled at once, whether it is
queued, in its prefill or decoding. A client that does not read for ``write_timeout_s`` is dropped.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from llgtrt.api.errors import RequestTimeoutError, describe, error_event, error_response
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.record import GENERATION, note, note_summary
from llgtrt.engine import Delta, Outlet, StreamCancelledError
from llgtrt.serving import Generation

LARGE_BYTES = 64 * 1024
"""After a part of so many bytes the others on the event loop have a turn."""

PING = b": ping\n\n"

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx buffers a response unless told not to.
    (b"x-accel-buffering", b"no"),
]


class TimedOutlet(Outlet, Protocol):
    """Knows when something was last written to it, as the loop counts time."""

    @property
    def written_at(self) -> float: ...


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Times in seconds; ``ping_interval_s`` 0 sends no pings."""

    ping_interval_s: float
    write_timeout_s: float
    request_timeout_s: float | None = None


class GenerationResponse(Response, ABC):
    """Base of both forms: owns the generation while it runs."""

    def __init__(self, generation: Generation, limits: DeliveryLimits, metrics: HttpMetrics) -> None:
        self.status_code = 200
        self.background = None
        self._generation = generation
        self._stream = generation.stream
        self._limits = limits
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._abort_connection: Callable[[], None] | None = None
        self._outlet: TimedOutlet | None = None
        self._deadline: float | None = None
        self._sending = False
        self._active_at = 0.0
        self._aborted = False
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Delivers the generation, or cancels it with its client."""
        self._task = asyncio.current_task()
        note(scope, stream=self._generation.streaming)
        scope[GENERATION] = self._generation
        self._abort_connection = scope.get("extensions", {}).get("llgtrt.abort")
        self._active_at = self._loop.time()
        if self._limits.request_timeout_s is not None:
            self._deadline = self._active_at + self._limits.request_timeout_s
        watch = self._loop.create_task(self._watch(receive))
        self._tick()
        try:
            await self._deliver(scope, receive, send)
        except StreamCancelledError:
            note(scope, outcome="client left")
            return
        except asyncio.CancelledError:
            if not self._aborted:
                raise
            note(scope, outcome="client too slow")
        finally:
            self._stream.cancel()
            if self._stream.summary is not None:
                note_summary(scope, self._stream.summary)
            watch.cancel()
            if self._timer is not None:
                self._timer.cancel()

    @abstractmethod
    async def _deliver(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer."""

    async def _write_pieces(self, send: Send, pieces: Iterator[bytes]) -> None:
        """Writes what is made on a thread, piece by piece, as far as there is a client."""
        while not self._left and (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await self._write(send, {"type": "http.response.body", "body": piece, "more_body": True})

    async def _write(self, send: Send, message: Message) -> None:
        self._stream.stop_writing()
        self._active_at = self._loop.time()
        self._sending = True
        await send(message)
        self._sending = False
        if len(message.get("body", b"")) >= LARGE_BYTES:
            await asyncio.sleep(0)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        if not self._stream.finished:
            self._metrics.disconnect("disconnected")
            self._stream.cancel()

    def _tick(self) -> None:
        """Looks after idle and stuck streams from time to time, so that a chunk costs no timer."""
        now = self._loop.time()
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._stream.fail(RequestTimeoutError())
        if self._outlet is not None:
            written_ago_s = self._stream.written_ago_s
            written_at = self._outlet.written_at if written_ago_s is None else now - written_ago_s
            self._active_at = max(self._active_at, written_at)
        idle_s = now - self._active_at
        limit_s = self._limits.write_timeout_s
        if self._sending:
            if idle_s >= limit_s:
                self._drop_slow_client()
                return
            due = self._active_at + limit_s
        else:
            ping_s = self._limits.ping_interval_s
            if ping_s > 0:
                if idle_s >= ping_s:
                    self._stream.wake()
                    due = now + ping_s
                else:
                    due = self._active_at + ping_s
                due = min(due, now + limit_s)
            else:
                due = now + limit_s
        if self._deadline is not None:
            due = min(due, self._deadline)
        self._timer = self._loop.call_at(due, self._tick)

    def _drop_slow_client(self) -> None:
        self._aborted = True
        self._metrics.disconnect("slow")
        self._stream.cancel()
        if self._abort_connection is not None:
            self._abort_connection()
        if self._task is not None:
            self._task.cancel()


class PiecewiseResponse(Response):
    """A response whose body is made while it is sent. Its length is unknown unless a header says it."""

    def __init__(
        self, pieces: Iterator[bytes], headers: Mapping[str, str] | None = None, media_type: str | None = None
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        if headers is None or "Content-Length" not in headers:
            del self.headers["content-length"]
        self.pieces = pieces


class JsonGenerationResponse(GenerationResponse):
    """One JSON object when the generation is complete."""

    async def _deliver(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            delta = await self._stream.result()
        except StreamCancelledError:
            raise
        except Exception as error:
            failure = error_response(self._generation.explain(error))
            note(scope, error=failure.error_code)
            response: Response = failure.for_route(scope)
        else:
            response = await self._answer(delta)
        start: Message = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": response.raw_headers,
        }
        await self._write(send, start)
        if isinstance(response, PiecewiseResponse):
            await self._write_pieces(send, response.pieces)
        await self._write(send, {"type": "http.response.body", "body": response.body, "more_body": False})

    async def _answer(self, delta: Delta) -> Response:
        """The response for a complete generation."""
        output = self._generation.output
        pieces = None if output is None else output.pieces(delta, True)
        if pieces is not None:
            return PiecewiseResponse(pieces, media_type="application/json")
        parts = await self._generation.response_parts(delta)
        if len(parts) == 1:
            return Response(parts[0], media_type="application/json")
        headers = {"Content-Length": str(sum(map(len, parts)))}
        return PiecewiseResponse(iter(parts), headers, "application/json")


class SseGenerationResponse(GenerationResponse):
    """Server-sent events: written as the core made them, or encoded from its structured output.

    The headers wait for the first payload, so that an error before it is an HTTP status. If the first payload
    takes longer than the ping interval, headers and a ping are sent: a proxy would cut the connection.
    """

    async def _start_events(self, send: Send) -> None:
        headers = list(SSE_HEADERS)
        await self._write(send, {"type": "http.response.start", "status": 200, "headers": headers})

    async def _deliver(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._stream
        started = False
        try:
            while not stream.finished:
                payload = await stream.next()
                if payload is None:
                    body = PING
                elif isinstance(payload, bytes):
                    body = payload
                elif self._generation.output is not None:
                    # What came before an error is delivered before it.
                    last = self._stream.finished and payload.error is None
                    pieces = self._generation.output.pieces(payload, last) if payload.error is None else None
                    if pieces is not None:
                        if not started:
                            started = True
                            await self._start_events(send)
                        await self._write_pieces(send, pieces)
                        body = b""
                    else:
                        body = await self._generation.encode(payload, last)
                    if payload.error is not None:
                        if body and started:
                            await self._write(
                                send, {"type": "http.response.body", "body": body, "more_body": True}
                            )
                        raise payload.error
                    if not body and not stream.finished:
                        continue
                elif payload.error is not None:
                    raise payload.error
                else:
                    raise TypeError("a stream without an encoder needs a request for server-sent events")
                if not started:
                    started = True
                    await self._start_events(send)
                    send = scope.get("llgtrt.send", send)
                    make_outlet = scope.get("extensions", {}).get("llgtrt.outlet")
                    if make_outlet is not None:
                        self._outlet = make_outlet()
                        stream.pipe(self._outlet)
                await self._write(
                    send, {"type": "http.response.body", "body": body, "more_body": not stream.finished}
                )
        except StreamCancelledError:
            raise
        except Exception as failure:
            error = self._generation.explain(failure)
            if not started:
                await error_response(error)(scope, receive, send)
            else:
                told, _headers = describe(error)
                note(scope, error=told.code or told.type)
                output = self._generation.output
                body = error_event(told) if output is None else output.failed(told)
                await self._write(send, {"type": "http.response.body", "body": body, "more_body": False})
