"""Requests written byte by byte, as no client library would."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support.server import ServerProcess

TIMEOUT_S = 60.0
JSON = {"content-type": "application/json"}


def connect(server: ServerProcess) -> socket.socket:
    """A connection on which nothing has been sent."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT_S)


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> httpx.Response:
    """One POST on a new connection."""
    # Without verify=False each client would read all certificates of the system.
    return httpx.post(server.base_url + path, json=body, timeout=2 * TIMEOUT_S, verify=False)


def request_bytes(path: str, body: bytes, headers: str = "") -> bytes:
    """A whole POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextmanager
def open_request(server: ServerProcess, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """Sends a request without waiting for its answer; leaving drops the connection."""
    with connect(server) as client:
        client.sendall(request_bytes(path, json.dumps(body).encode()))
        yield client


def answer_of(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (names in lower case) and body of the answer on a connection."""
    response = http.client.HTTPResponse(client)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers, response.read()


def rest_of(client: socket.socket) -> bytes:
    """What comes until the server closes the connection; a reset is a close."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
