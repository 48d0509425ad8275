"""Connections beyond what the limit of open files allows."""

from __future__ import annotations

import asyncio
import resource

import pytest

from llgtrt.api.connections import (
    LEAST_CONNECTIONS,
    MOST_LAST_WORDS,
    SPARE_FILES,
    Admission,
    ConnectionGate,
    most_connections,
)


def test_those_beyond_the_limit_are_told_and_the_rest_cut(caplog: pytest.LogCaptureFixture) -> None:
    refused = []
    gate = ConnectionGate(2, lambda: refused.append(1))
    assert [gate.enter() for _ in range(2)] == [Admission.SERVED] * 2
    assert [gate.enter() for _ in range(MOST_LAST_WORDS)] == [Admission.TOLD] * MOST_LAST_WORDS
    assert gate.enter() is Admission.CUT
    assert len(refused) == MOST_LAST_WORDS + 1
    # A flood is one line.
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    gate.leave(Admission.CUT)
    assert gate.enter() is Admission.CUT
    gate.leave(Admission.TOLD)
    assert gate.enter() is Admission.TOLD
    gate.leave(Admission.SERVED)
    assert gate.enter() is Admission.SERVED
    assert gate.enter() is Admission.CUT


def test_without_a_limit_all_are_served() -> None:
    gate = ConnectionGate(None)
    assert {gate.enter() for _ in range(5000)} == {Admission.SERVED}


@pytest.mark.parametrize(("soft", "most"), [(resource.RLIM_INFINITY, None), (10, LEAST_CONNECTIONS)])
def test_the_limit_of_files_bounds_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections() == most
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10_000, 10_000))
    found = most_connections()
    assert found is not None
    # An eighth is left to the second descriptors of streams.
    assert found == 10_000 - 1250 - SPARE_FILES


async def test_a_connection_that_is_turned_away_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tested on the protocol alone, on a real socket: its own request is on the way already.
    import uvicorn
    from uvicorn.server import ServerState

    from llgtrt.api.http_protocol import LimitedHttpProtocol

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("it is not served")

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    gate = ConnectionGate(0)
    loop = asyncio.get_running_loop()
    state = ServerState()
    server = await loop.create_server(
        lambda: LimitedHttpProtocol(config, state, app_state={}, gate=gate), "127.0.0.1", 0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 100000\r\n\r\n" + b"x" * 100_000)
        answer = await asyncio.wait_for(reader.read(), 10)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in head
        assert b'"code":"overloaded"' in body
        writer.close()
