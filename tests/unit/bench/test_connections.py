"""Connections of ``llgtrt bench`` that the server closes."""

from __future__ import annotations

import asyncio

from llgtrt.bench.client import read_answer, run

ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n'
)


class Closing:
    """Answers the first request of each connection, if ``answers``, and closes it at the next."""

    def __init__(self, answers: bool = True) -> None:
        self.answers = answers
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self._request(reader)
        if self.answers:
            head, _, rest = ANSWER.partition(b"\r\n\r\n")
            writer.write(head % len(rest) + b"\r\n\r\n" + rest)
            await self._request(reader)
        writer.close()

    @staticmethod
    async def _request(reader: asyncio.StreamReader) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))


async def ask(closing: Closing) -> list[str | None]:
    server = await asyncio.start_server(closing.serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        exchanges = await run(f"http://{host}:{port}/v1/chat/completions", [{}] * 3, concurrency=1)
    return [read_answer(one).error for one in exchanges]


async def test_a_request_on_a_connection_that_is_closed_is_sent_again() -> None:
    closing = Closing()
    assert await ask(closing) == [None] * 3
    assert closing.connections == 3


async def test_a_server_that_never_answers_has_failed() -> None:
    closing = Closing(answers=False)
    assert all(error is not None and error.startswith("ServerDisconnected") for error in await ask(closing))
    assert closing.connections == 6
