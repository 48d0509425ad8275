"""Limits on the HTTP connection that uvicorn itself does not have.

A head that is too large or too slow, and a body that goes on after the answer, end the connection. Errors in
the HTTP syntax are answered in OpenAI's form too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from llgtrt.api.connections import Admission, ConnectionGate
from llgtrt.api.errors import INVALID_REQUEST, RETRY_AFTER_S, SERVER_ERROR
from llgtrt.serving import Failure

MOST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 256
MOST_DISCARDED_BYTES = 64 * 1024 * 1024
"""How much of a body is read on after an early answer, such as 413, before the connection is cut. Closing at
once would lose the answer: the kernel resets a connection that is closed with unread data."""

DEFAULT_HEADER_TIMEOUT_S = 30.0
LAST_WORDS_S = 1.0
"""How long a connection that is turned away may take to read why."""


class ChunkOutlet:
    """Writes parts of a streamed body through the transport, and says when its socket may be written to
    instead: see :class:`llgtrt.engine.Outlet`.

    Attributes:
        written_at: when something was last written, as the loop counts time; 0 before.
    """

    __slots__ = ("_cycle", "_now", "_socket", "_transport", "written_at")

    def __init__(self, cycle: RequestResponseCycle, now: Callable[[], float]) -> None:
        self.written_at = 0.0
        self._cycle = cycle
        self._transport = cycle.transport
        self._now = now
        plain = self._transport.get_extra_info("sslcontext") is None
        socket = self._transport.get_extra_info("socket") if plain else None
        self._socket: int | None = None if socket is None else socket.fileno()

    def write(self, body: bytes) -> bool:
        """Writes a part as a chunk; false, and nothing, if it cannot be now."""
        if not self._takes_chunks():
            return False
        self.written_at = self._now()
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def write_rest(self, data: bytes) -> None:
        """Writes the end of a chunk that was begun on the socket."""
        self.written_at = self._now()
        if not self._transport.is_closing():
            self._transport.write(data)

    def socket(self) -> int | None:
        """The connection's descriptor, if chunks may be written to it now."""
        if self._socket is None or not self._takes_chunks() or self._transport.is_closing():
            return None
        return self._socket if self._transport.get_write_buffer_size() == 0 else None

    def _takes_chunks(self) -> bool:
        cycle = self._cycle
        ended = cycle.response_complete or cycle.disconnected
        return bool(cycle.chunked_encoding) and not ended and not cycle.flow.write_paused


class _UntilClosed(int):
    """What a response has left of its length where nobody said how long it is."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _UntilClosed:
        return self

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a deadline and a size limit on the request's head."""

    def __init__(
        self,
        *arguments: Any,
        header_timeout_s: float = DEFAULT_HEADER_TIMEOUT_S,
        gate: ConnectionGate | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._gate = gate or ConnectionGate(None)
        self._admission = Admission.SERVED
        self._header_timeout_s = header_timeout_s
        self._head_timer: asyncio.TimerHandle | None = None
        self._in_head = True
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._header_count = 0
        self._discarded_bytes = 0
        self._refusal: tuple[int, str] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its request must follow in time."""
        super().connection_made(transport)
        self._admission = self._gate.enter()
        if self._admission is Admission.SERVED:
            self._start_head_timer()
        elif self._admission is Admission.TOLD:
            self._turn_away()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_head_timer()
        self._gate.leave(self._admission)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what came, within the limits."""
        if self.transport.is_closing() or self._admission is not Admission.SERVED:
            return
        if self._in_head:
            self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._in_head:
            # A header without an end is not reported by the parser: what was fed counts as well.
            if self._unparsed_bytes > MOST_HEAD_BYTES:
                self._refuse(431, "The request's head is too large.")
            elif self._head_timer is None:
                self._start_head_timer()

    def on_message_begin(self) -> None:
        """A request begins, the first or the next on the connection."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._header_count = 0

    def on_url(self, url: bytes) -> None:
        """A part of the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._header_count += 1
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete: the application takes over."""
        self._in_head = False
        self._unparsed_bytes = 0
        self._stop_head_timer()
        extensions: dict[str, Any] = {"llgtrt.abort": self.transport.abort}
        self.scope["extensions"] = extensions
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            # Chunks came with HTTP/1.1: before it the end of the connection is the end of the body.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = _UntilClosed()
        extensions["llgtrt.outlet"] = functools.partial(ChunkOutlet, self.cycle, self.loop.time)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > MOST_DISCARDED_BYTES:
                self.transport.abort()
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP."""
        status, message = self._refusal or (400, msg)
        self._refuse(status, message)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES or self._header_count > MOST_HEADERS:
            self._refusal = (431, "The request's head is too large.")
            # The parser hands the exception to data_received, which calls send_400_response.
            raise ValueError("head too large")

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        self._say(status, to_json(Failure(status, message, INVALID_REQUEST).openai()))
        self.transport.close()

    def _turn_away(self) -> None:
        message = "The server has as many connections as it may have."
        body = to_json(Failure(503, message, SERVER_ERROR, code="overloaded").openai())
        self._say(503, body, b"retry-after: %b\r\n" % RETRY_AFTER_S["overloaded"].encode())
        # What the client has sent is read on and thrown away: if it were not, closing would reset the
        # connection and take these words away.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._head_timer = self.loop.call_later(LAST_WORDS_S, self.transport.abort)

    def _say(self, status: int, body: bytes, headers: bytes = b"") -> None:
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (STATUS_LINE[status], len(body), headers, body)
        )

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._header_timeout_s, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timed_out(self) -> None:
        self._head_timer = None
        if self._in_head:
            self._refuse(408, "The request did not arrive in time.")
