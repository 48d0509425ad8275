"""Many requests of a model at once, clients that leave, health, and code that hangs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request

from llgtrt.truss import model, routes
from support.asgi import AsgiCall
from support.fake_engine import FakeNativeEngine
from support.server import wait_until

from .conftest import PREDICT, ServeModel, error, post


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something that happens on another thread."""
    await asyncio.to_thread(wait_until, condition, "the condition of the test")


async def test_predict_concurrency(serve: ServeModel) -> None:
    running: list[int] = []
    most: list[int] = []
    go = threading.Event()

    class Model:
        async def predict(self, inputs: Any) -> Any:
            running.append(inputs)
            most.append(len(running))
            await until(go.is_set)
            running.remove(inputs)

        async def chat_completions(self, inputs: Any) -> Any:
            return len(running)

    app = serve(Model, predict_concurrency=2)
    async with (
        AsgiCall(app, PREDICT, b"1") as a,
        AsgiCall(app, PREDICT, b"2") as b,
        AsgiCall(app, PREDICT, b"3") as c,
    ):
        await until(lambda: len(running) == 2)
        chat = await post(app, path="/v1/chat/completions")
        assert chat.json() == 2, "it needs no place"
        go.set()
        for call in (a, b, c):
            assert (await call.done()).status == 200
    assert max(most) == 2


async def test_a_stream_keeps_its_place_until_it_is_sent(serve: ServeModel) -> None:
    class Model:
        def __init__(self) -> None:
            self.open = 0

        async def predict(self, inputs: Any) -> AsyncIterator[str]:
            self.open += 1
            yield str(self.open)
            yield str(self.open)
            self.open -= 1

    app = serve(Model)
    async with AsgiCall(app, PREDICT, {}) as first, AsgiCall(app, PREDICT, {}) as second:
        assert (await first.done()).body == b"11"
        assert (await second.done()).body == b"11"


async def test_what_is_not_ready_is_503(serve: ServeModel, native: FakeNativeEngine) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any: ...

    app = serve(Model)

    async def get(path: str) -> AsgiCall:
        return await AsgiCall(app, path, method="GET").done()

    assert (await get("/")).json() is True
    assert (await get("/v1/models/m")).json() == {}
    assert (await get("/v1/models/m/loaded")).json() == {}
    native.begin_drain()
    assert (await get("/")).json() is True, "the process is alive"
    assert error(await get("/v1/models/m"), 503) == "Model with name m is not ready."
    assert error(await get("/v1/models/m/loaded"), 503) == "Model with name m is not ready."
    call = await post(app)
    assert error(call, 503) == "Model with name anything is not ready."
    assert "retry-after" in call.headers


@pytest.mark.parametrize(("healthy", "status"), [(True, 200), (False, 503), (None, 503), ("raise", 503)])
@pytest.mark.parametrize("form", ["sync", "async"])
async def test_is_healthy_decides_readiness(serve: ServeModel, healthy: Any, status: int, form: str) -> None:
    def answer(self: Any) -> Any:
        if healthy == "raise":
            raise RuntimeError
        return healthy

    async def answer_async(self: Any) -> Any:
        return answer(self)

    methods = {"predict": lambda self, x: None, "is_healthy": answer if form == "sync" else answer_async}
    app = serve(type("Model", (), methods))
    assert (await AsgiCall(app, "/v1/models/m", method="GET").done()).status == status
    assert (await AsgiCall(app, "/v1/health/ready", method="GET").done()).status == 200, "the server's own"


async def test_a_dropped_client_is_499_and_the_steps_are_skipped(serve: ServeModel) -> None:
    steps: list[str] = []
    go = threading.Event()
    started = threading.Event()

    class Model:
        async def preprocess(self, inputs: Any) -> Any:
            steps.append("preprocess")
            started.set()
            await until(go.is_set)

        async def predict(self, inputs: Any, request: Request) -> Any:
            steps.append("predict")

    app = serve(Model)
    async with AsgiCall(app, PREDICT, {}) as call:
        await until(started.is_set)
        call.disconnect()
        await until(lambda: disconnects(app) == 1)
        go.set()
        await call.done()
    assert steps == ["preprocess"]
    assert error(call, 499) == "Client disconnected, skipping `predict`."


def disconnects(app: FastAPI) -> float:
    """Clients that the server saw leave."""
    registry = app.state.services.metrics.registry
    return float(registry.get_sample_value("llgtrt_http_disconnects_total", {"reason": "disconnected"}))


async def test_a_model_may_ask_whether_its_client_is_there(serve: ServeModel) -> None:
    seen: list[str] = []

    class Model:
        async def predict(self, inputs: Any, request: Request) -> Any:
            seen.append("started" if not await request.is_disconnected() else "gone")
            while not await request.is_disconnected():  # noqa: ASYNC110 (as models do)
                await asyncio.sleep(0.001)
            seen.append("gone")

        def completions(self, request: Request) -> Any:
            with request.state.watch_disconnect() as gone:
                seen.append("started")
                gone.wait()
            seen.append("gone")

    app = serve(Model)
    for path in (PREDICT, "/v1/completions"):
        seen.clear()
        async with AsgiCall(app, path, {}) as call:
            await until(lambda: bool(seen))
            call.disconnect()
            await call.done()
        assert seen == ["started", "gone"]


@pytest.mark.parametrize("path", [PREDICT, "/v1/completions"])
async def test_a_generator_is_closed_when_its_client_leaves(serve: ServeModel, path: str) -> None:
    closed = threading.Event()

    class Model:
        async def predict(self, inputs: Any) -> AsyncIterator[str]:
            try:
                while True:
                    yield "x"
                    await asyncio.sleep(0)
            finally:
                closed.set()

        def completions(self, inputs: Any) -> Iterator[str]:
            try:
                while True:
                    yield "x"
            finally:
                closed.set()

    async with AsgiCall(serve(Model), path, {}) as call:
        await call.until(3)
        assert not closed.is_set()
        call.disconnect()
        await call.done()
    await asyncio.to_thread(closed.wait, 10)
    assert closed.is_set()


async def test_more_requests_than_allowed_are_refused(serve: ServeModel) -> None:
    go = threading.Event()

    class Model:
        def predict(self, inputs: Any) -> Any:
            go.wait()

    app = serve(Model, most_requests=2)
    async with AsgiCall(app, PREDICT, {}) as a, AsgiCall(app, PREDICT, {}) as b:
        await asyncio.sleep(0)
        call = await post(app)
        assert "More than 2 requests" in error(call, 503)
        assert call.headers["retry-after"] == "1"
        go.set()
        assert (await a.done()).status == (await b.done()).status == 200
    assert (await post(app)).status == 200


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_a_method_that_hangs_does_not_keep_the_server(serve: ServeModel, form: str) -> None:
    """An asynchronous method that blocks keeps the model's loop, not the server's."""
    go = threading.Event()
    started = threading.Event()

    def hang(self: Any, inputs: Any) -> None:
        started.set()
        go.wait()

    async def hang_async(self: Any, inputs: Any) -> None:
        hang(self, inputs)

    app = serve(type("Model", (), {"predict": hang if form == "sync" else hang_async}))
    async with AsgiCall(app, PREDICT, {}) as call:
        await until(started.is_set)
        for path in ("/v1/health/ready", "/v1/health/live", "/metrics", "/"):
            assert (await AsgiCall(app, path, method="GET").done()).status == 200
        go.set()
        await call.done()


async def test_the_request_timeout(serve: ServeModel, services: Any) -> None:
    cancelled = threading.Event()

    class Model:
        async def predict(self, inputs: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    app = serve(Model)
    slow = services.server.model_copy(update={"request_timeout_s": 0.01})
    object.__setattr__(services, "server", slow)
    assert error(await post(app), 504) == "The request took too long."
    await asyncio.to_thread(cancelled.wait, 10)
    assert cancelled.is_set()


@pytest.mark.parametrize("form", ["sync", "async", "blocking"])
async def test_is_healthy_that_hangs_is_not_ready(
    serve: ServeModel, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes that go on asking use no more than one thread, and none waits for a loop that is blocked."""
    monkeypatch.setattr(model, "HEALTH_TIMEOUT_S", 0.01)
    monkeypatch.setattr(routes, "HEALTH_TIMEOUT_S", 0.01)
    monkeypatch.setattr(routes, "HEALTH_MARGIN_S", 0.1)
    go = threading.Event()
    calls: list[int] = []

    class Model:
        def predict(self, inputs: Any) -> Any:
            return "there is a thread left"

    def hang(self: Any) -> bool:
        calls.append(1)
        return go.wait()

    async def hang_async(self: Any) -> bool:
        calls.append(1)
        await asyncio.Event().wait()
        return True

    async def block(self: Any) -> bool:
        return hang(self)

    Model.is_healthy = {"sync": hang, "async": hang_async, "blocking": block}[form]  # type: ignore[attr-defined]
    app = serve(Model, threads=2)

    async def probe() -> int:
        return (await AsgiCall(app, "/v1/models/m", method="GET").done()).status

    while not calls:
        assert await probe() == 503
    assert [await probe() for _ in range(3)] == [503] * 3
    assert len(calls) == 1
    if form != "blocking":
        assert (await post(app)).json() == "there is a thread left"
    go.set()
    while form == "sync" and await probe() != 200:
        pass
