"""API keys: who may come in, how often, and how many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from llgtrt.api.auth import MINUTE_S, ApiKeyMiddleware, RequestRate
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.record import RECORD
from llgtrt.config import ApiKey
from support.asgi import AsgiCall

PATH = "/v1/chat/completions"


class Server:
    """Keys around an application that answers when it is told to."""

    def __init__(self, *keys: ApiKey) -> None:
        self.metrics = HttpMetrics()
        self.now = 100.0
        self.finish = asyncio.Event()
        self.finish.set()
        self.names: list[Any] = []
        self._came = asyncio.Condition()
        self.app = ApiKeyMiddleware(self._answer, keys, self.metrics, clock=lambda: self.now)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._came:
            self.names.append(scope[RECORD].get("key"))
            self._came.notify_all()
        await self.finish.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def call(self, *headers: tuple[str, str], method: str = "POST", path: str = PATH) -> AsgiCall:
        async def with_record(scope: Scope, receive: Receive, send: Send) -> None:
            await self.app({**scope, RECORD: {}}, receive, send)

        return AsgiCall(with_record, path, method=method, headers=headers)

    async def status(self, *headers: tuple[str, str], method: str = "POST") -> int:
        async with self.call(*headers, method=method) as call:
            return (await call.done()).status

    async def until_waiting(self, count: int) -> None:
        async with self._came:
            await self._came.wait_for(lambda: len(self.names) >= count)


def bearer(key: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {key}")


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ([bearer("key-a")], "a"),
        ([("x-api-key", "key-a")], "a"),
        ([("X-Api-Key", "key-b")], "b"),
        # A client that has both variables set sends both; one of them is for somebody else's server.
        ([bearer("unknown"), ("x-api-key", "key-b")], "b"),
        ([bearer("key-a"), ("x-api-key", "unknown")], "a"),
        ([bearer("key-a"), ("x-api-key", "key-b")], "a"),
        ([("x-api-key", "nameless")], None),
    ],
)
async def test_who_sends_a_request(headers: list[tuple[str, str]], name: str | None) -> None:
    server = Server(ApiKey(name="a", key="key-a"), ApiKey(name="b", key="key-b"), ApiKey(key="nameless"))
    assert await server.status(*headers) == 200
    assert server.names == [name]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-api-key", "")],
        [("x-api-key", "key-a "), ("x-api-key", "key-a")],
        [("x-api-key", "Bearer key-a")],
        [("x-api-key", "KEY-A")],
        [bearer("key-a"), bearer("key-a")],
        [("authorization", "key-a")],
        [("authorization", "Basic key-a")],
    ],
)
async def test_nobody_known(headers: list[tuple[str, str]]) -> None:
    server = Server(ApiKey(name="a", key="key-a"))
    async with server.call(*headers) as call:
        await call.done()
    assert (call.status, call.error["code"]) == (401, "invalid_api_key")
    assert call.headers["www-authenticate"] == "Bearer"
    assert call.error["message"].startswith("Incorrect API key provided" if headers else "You didn't provide")
    assert server.names == []


async def test_requests_at_the_same_time() -> None:
    server = Server(ApiKey(name="a", key="k", max_concurrent=2), ApiKey(name="b", key="l"))
    server.finish.clear()
    async with server.call(bearer("k")) as first, server.call(bearer("k")) as second:
        await server.until_waiting(2)
        async with server.call(bearer("k")) as third:
            await third.done()
        assert (third.status, third.error["code"]) == (429, "rate_limit_exceeded")
        assert third.headers["retry-after"] == "1"
        # Neither the list of models nor another key waits for them.
        async with server.call(bearer("k"), method="GET") as models, server.call(bearer("l")) as other:
            await server.until_waiting(4)
            server.finish.set()
            for call in (first, second, models, other):
                assert (await call.done()).status == 200
    assert await server.status(bearer("k")) == 200


async def test_a_request_that_fails_gives_its_place_back() -> None:
    async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ZeroDivisionError

    app = ApiKeyMiddleware(fail, [ApiKey(key="k", max_concurrent=1)], HttpMetrics())
    for _ in range(3):
        call = AsgiCall(app, PATH, headers=[bearer("k")])
        with pytest.raises(ZeroDivisionError):
            await call.done()


async def test_requests_of_a_minute() -> None:
    server = Server(ApiKey(name="a", key="k", requests_per_minute=3))
    assert [await server.status(bearer("k")) for _ in range(4)] == [200, 200, 200, 429]
    async with server.call(bearer("k")) as call:
        await call.done()
    assert call.headers["retry-after"] == "20", "a third of a minute"
    server.now += 19.9
    assert await server.status(bearer("k")) == 429, "what was refused takes no place"
    server.now += 0.1
    assert [await server.status(bearer("k")) for _ in range(2)] == [200, 429]
    assert await server.status(bearer("k"), method="GET") == 200
    samples = server.metrics.registry.get_sample_value
    labels = {"key": "a", "result": "admitted"}
    assert samples("llgtrt_key_requests_total", labels) == 4
    assert samples("llgtrt_key_requests_total", {**labels, "result": "limited"}) == 4


@pytest.mark.parametrize("per_minute", [1, 2, 7, 60, 1000])
def test_a_client_that_does_as_it_is_told_is_never_refused_twice(per_minute: int) -> None:
    rate = RequestRate(per_minute)
    now, taken = 12345.678, 0
    while taken < 3 * per_minute:
        wait = rate.take(now)
        if wait == 0:
            taken += 1
        else:
            assert 0 < wait <= MINUTE_S / per_minute + 1e-6
            assert rate.take(now + wait) == 0
            now += wait
            taken += 1
    # A minute's worth came at once, the rest evenly.
    assert now - 12345.678 == pytest.approx(2 * MINUTE_S, rel=1e-6)
