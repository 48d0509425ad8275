"""The floor of the front-end bench: an asyncio server that does nothing but write ready-made SSE chunks.

It parses no HTTP, has no engine and no text: per step it writes one prepared chunk to every open stream,
which is the least that a server in Python with one event loop can do.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import ClassVar, cast

import uvloop

CHUNK = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk",'
    b'"created":1700000000,"model":"sim","choices":[{"index":0,"delta":{"content":" word"},'
    b'"logprobs":null,"finish_reason":null}]}\n\n'
)
FRAMED = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
TAIL = b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE)


class Floor(asyncio.Protocol):
    """One connection; its stream starts with the first bytes received."""

    open_streams: ClassVar[dict[asyncio.WriteTransport, int]] = {}
    """Tokens left to write, by connection."""

    tokens: ClassVar[int] = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
        elif self.transport not in Floor.open_streams:
            self.transport.write(HEAD)
            Floor.open_streams[self.transport] = Floor.tokens

    def connection_lost(self, exc: Exception | None) -> None:
        Floor.open_streams.pop(self.transport, None)


def step() -> None:
    for transport, left in list(Floor.open_streams.items()):
        transport.write(FRAMED)
        Floor.open_streams[transport] = left - 1
        if left == 1:
            transport.write(TAIL)
            transport.close()
            del Floor.open_streams[transport]


async def serve(port: int, step_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Floor, "127.0.0.1", port, backlog=1024)
    async with server:
        due = time.monotonic()
        while True:
            due = max(due + step_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--step-ms", type=float, required=True)
    arguments = parser.parse_args()
    Floor.tokens = arguments.tokens
    uvloop.run(serve(arguments.port, arguments.step_ms / 1e3))


if __name__ == "__main__":
    main()
