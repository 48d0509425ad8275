"""A proxy between a client and the server that holds every response against OpenAI's description.

It serves clients in any language: they only need its address.
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

from support.openapi import ANSWERS, validate_answer

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "host", "content-length"})


@dataclass
class Exchange:
    """A request and what came back."""

    path: str
    request: bytes
    status: int
    content_type: str
    body: bytes = b""


@dataclass
class Judge:
    """Use it as a context manager; leaving it fails if a response was not as OpenAI describes it."""

    server_url: str
    exchanges: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> Judge:
        upstream = urlsplit(self.server_url)
        exchanges = self.exchanges

        class Handler(_Handler):
            address = (str(upstream.hostname), upstream.port or 80)
            record = exchanges

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if kind is None:
            self.check()

    @property
    def url(self) -> str:
        """What a client takes for the server, without /v1."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def check(self) -> None:
        """Fails if a response was not as described, or nothing was asked at all."""
        assert self.exchanges, "the client did not ask the server"
        for one in self.exchanges:
            if one.path in ANSWERS or one.path.startswith("/v1/models/"):
                validate_answer(one.path, one.status, one.content_type, one.body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    address: tuple[str, int]
    record: list[Exchange]

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""

    def _pass_on(self) -> None:
        request = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        try:
            connection.request(self.command, self.path, request, headers)
            response = connection.getresponse()
            content_type = response.headers.get("content-type", "")
            exchange = Exchange(urlsplit(self.path).path, request, response.status, content_type)
            self.record.append(exchange)
            self.send_response(response.status)
            for name, value in response.headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            while part := response.read1(65536):
                exchange.body += part
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            # The client has read what it wanted.
            self.close_connection = True
        finally:
            connection.close()
