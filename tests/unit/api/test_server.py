"""The HTTP server on a real socket: limits of the connection, draining, the end when the engine fails."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from llgtrt.api import http_protocol
from llgtrt.api import server as server_module
from llgtrt.api.server import EXIT_ENGINE_FAILED, HttpServer
from llgtrt.config import Config, ConfigError
from llgtrt.engine import EngineFailedError, new_error
from support.fake_engine import AppFactory, FakeNativeEngine, fake_engine
from support.wait import eventually

CHAT = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True}).encode()


class Running:
    """A server in this event loop, and what a client does with it."""

    def __init__(self, app: Any, native: FakeNativeEngine, **server: Any) -> None:
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        config = Config.model_validate({"server": server}).server
        engine = app.state.services.models if hasattr(app, "state") else fake_engine(native)
        self.signals = SimpleNamespace(stop=asyncio.Event(), can_drain=False)
        http = HttpServer(app, config, [self.listener])
        self.task = asyncio.ensure_future(http.run(engine, self.signals))  # type: ignore[arg-type]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def exchange(self, data: bytes) -> bytes:
        """Sends bytes and reads until the server closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    async def code(self) -> int:
        return await asyncio.wait_for(self.task, 20)


@asynccontextmanager
async def running(app: Any, native: FakeNativeEngine, **server: Any) -> AsyncIterator[Running]:
    one = Running(app, native, **server)
    await eventually(lambda: one.signals.can_drain)
    try:
        yield one
    finally:
        one.signals.stop.set()
        await asyncio.wait([one.task], timeout=20)
        one.listener.close()


async def submitted(native: FakeNativeEngine, count: int = 1) -> None:
    await eventually(lambda: len(native.handles) >= count and native.handles[-1].takes > 0)


def request(body: bytes = b"", path: str = "/v1/chat/completions", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: test", "content-type: application/json"]
    lines += [f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def error(response: bytes) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(response.partition(b"\r\n\r\n")[2])["error"]
    return body


async def test_a_head_that_does_not_arrive_is_dropped(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native, header_timeout_s=0.05) as server:
        for data in (b"", b"GET / HTTP/1.1\r\nhost: x\r\n", b"G"):
            response = await server.exchange(data)
            assert status(response) == 408
            assert error(response)["type"] == "invalid_request_error"


async def test_the_second_head_of_a_connection_has_a_deadline_too(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with running(make_app(), native, header_timeout_s=0.05) as server:
        response = await server.exchange(b"GET /v1/health/live HTTP/1.1\r\nhost: x\r\n\r\nGET /v1")
        assert b"408 " in response


async def test_idle_connections_are_closed(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native, keep_alive_s=0.05) as server:
        response = await server.exchange(b"GET /v1/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        assert status(response) == 200


async def test_a_long_stream_outlives_the_head_timeout(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with running(make_app(ping_interval_s=0.02), native, header_timeout_s=0.05) as server:
        reader, writer = await server.connect()
        writer.write(request(CHAT))
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        for _ in range(10):
            await asyncio.wait_for(reader.readuntil(b": ping"), 10)
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 1_000_000,
        b"GET /" + b"a" * 1_000_000,
        b"GET / HTTP/1.1\r\n" + b"x-header: 1\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_large_heads_are_refused(make_app: AppFactory, native: FakeNativeEngine, head: bytes) -> None:
    async with running(make_app(), native) as server:
        reader, writer = await server.connect()
        writer.write(head)
        response = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert status(response) == 431
        writer.close()


@pytest.mark.parametrize(
    "data",
    [b"hello\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n"],
)
async def test_what_is_not_http_gets_a_400(
    make_app: AppFactory, native: FakeNativeEngine, data: bytes
) -> None:
    async with running(make_app(), native) as server:
        response = await server.exchange(data)
        assert status(response) == 400
        assert error(response)["type"] == "invalid_request_error"


async def test_413_is_answered_before_the_body_has_come(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with running(make_app(max_body_bytes=1000), native) as server:
        reader, writer = await server.connect()
        writer.write(request(b"", "/v1/chat/completions").replace(b"length: 0", b"length: 9999999"))
        assert status(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)) == 413
        writer.close()


async def test_a_body_without_an_end_is_cut_after_the_answer(
    make_app: AppFactory, native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "MOST_DISCARDED_BYTES", 1_000_000)
    async with running(make_app(max_body_bytes=1000), native) as server:
        _, writer = await server.connect()
        writer.write(request().replace(b"content-length: 0", b"transfer-encoding: chunked"))

        async def send_on() -> None:
            for _ in range(10_000):
                writer.write(b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n")
                await writer.drain()

        with pytest.raises(OSError):  # noqa: PT011 (reset or broken pipe)
            await send_on()
        writer.close()


async def test_p22_a_signal_drains(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native) as server:
        reader, writer = await server.connect()
        writer.write(request(CHAT))
        await submitted(native)
        native.handles[0].put(b"data: 1\n\n")
        await asyncio.wait_for(reader.readuntil(b"data: 1\n\n"), 10)
        server.signals.stop.set()
        await eventually(lambda: native.state[0] == "draining")
        # The port is still open: probes see that the server is not ready.
        probe = await server.exchange(
            b"GET /v1/health/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        assert status(probe) == 503
        native.handles[0].put(b"data: [DONE]\n\n", last=True)
        rest = await asyncio.wait_for(reader.read(), 10)
        assert b"[DONE]" in rest
        assert await server.code() == 0
        writer.close()


async def test_p22_what_does_not_finish_is_cancelled(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native, drain_timeout_s=0.05) as server:
        reader, writer = await server.connect()
        writer.write(request(CHAT))
        await submitted(native)
        native.handles[0].put(b"data: 1\n\n")
        await asyncio.wait_for(reader.readuntil(b"data: 1\n\n"), 10)
        server.signals.stop.set()
        rest = await asyncio.wait_for(reader.read(), 10)
        assert b'"code":"shutting_down"' in rest
        assert b"data: [DONE]" in rest
        assert native.handles[0].cancelled
        assert await server.code() == 0
        writer.close()


async def test_a_failed_engine_ends_the_server(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native) as server:
        silent, writer = await server.connect()
        writer.write(request(CHAT))
        await submitted(native)
        reader, second = await server.connect()
        second.write(request(CHAT))
        await submitted(native, 2)
        native.handles[1].put(b"data: 1\n\n")
        native.handles[1].put(
            SimpleNamespace(choices=[], usage=None, error=new_error(EngineFailedError, "The engine failed.")),
            last=True,
        )
        native.state = ("failed", "step 7")
        # The core told the second stream; the first never hears from the core and is told by the server.
        assert b'"code":"engine_failed"' in await asyncio.wait_for(reader.read(), 10)
        assert status(await asyncio.wait_for(silent.read(), 10)) == 503
        assert await server.code() == EXIT_ENGINE_FAILED
        writer.close()
        second.close()


async def test_a_failure_while_draining_ends_the_drain(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with running(make_app(), native) as server:
        reader, writer = await server.connect()
        writer.write(request(CHAT))
        await submitted(native)
        server.signals.stop.set()
        await eventually(lambda: native.state[0] == "draining")
        native.state = ("failed", "step 7")
        assert b'"code":"engine_failed"' in await asyncio.wait_for(reader.read(), 10)
        assert await server.code() == EXIT_ENGINE_FAILED
        writer.close()


async def test_a_port_in_use_is_a_configuration_error(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app()
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind(("127.0.0.1", 0))
        second.bind(first.getsockname())
        first.listen()
        http = HttpServer(app, Config().server, [second])
        with pytest.raises(ConfigError):
            await http.run(app.state.services.models, SimpleNamespace(stop=asyncio.Event()))  # type: ignore[arg-type]


async def test_what_requests_leave_in_cycles_is_freed_when_nothing_runs(
    native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left:
        myself: Left

    left: list[weakref.ref[Left]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        one = Left()
        one.myself = one
        left.append(weakref.ref(one))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    monkeypatch.setattr(server_module, "TIDY_S", 0.01)
    gc.disable()
    try:
        async with running(app, native) as server:
            await server.exchange(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            await eventually(lambda: left[0]() is None)
    finally:
        gc.enable()


async def test_answers_carry_the_date(
    make_app: AppFactory, native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "DATE_S", 0.01)
    async with running(make_app(), native) as server:

        async def date() -> bytes:
            response = await server.exchange(
                b"GET /v1/health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            )
            lines = [line for line in response.split(b"\r\n") if line.startswith(b"date: ")]
            assert len(lines) == 1
            return lines[0]

        async def another(than: bytes) -> bytes:
            while (latest := await date()) == than:
                pass
            return latest

        first = await date()
        latest = await asyncio.wait_for(another(first), 10)
        assert parsedate_to_datetime(latest.decode()[6:]) > parsedate_to_datetime(first.decode()[6:])


async def test_a_stalled_engine_ends_the_server_if_it_may(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with running(make_app(), native, exit_after_stall_s=0.0) as server:
        native.state = ("stalled", "no step for 60 s")
        assert await server.code() == EXIT_ENGINE_FAILED
    native.state = ("ready", "")


async def test_a_stall_is_waited_out_by_default(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with running(make_app(), native) as server:
        native.state = ("stalled", "no step for 60 s")
        response = await server.exchange(
            b"GET /v1/health/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        assert status(response) == 503
        assert not server.task.done()
