"""Requests through the methods of a model: steps, results, errors, clients that leave."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgpack
import pytest
from fastapi import HTTPException, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from support.asgi import AsgiCall

from .conftest import PREDICT, ServeModel, error, post


async def test_the_steps_in_order(serve: ServeModel) -> None:
    class Model:
        def preprocess(self, inputs: Any) -> Any:
            return [*inputs, "pre"]

        async def predict(self, inputs: Any, request: Request) -> Any:
            return [*inputs, request.headers["x-who"]]

        def postprocess(self, result: Any) -> Any:
            return {"steps": [*result, "post"]}

    call = await post(serve(Model), ["in"], x_who="me")
    assert call.status == 200
    assert call.json() == {"steps": ["in", "pre", "me", "post"]}
    assert call.headers["content-type"] == "application/json"


async def test_openai_s_routes_skip_the_other_steps(serve: ServeModel) -> None:
    class Model:
        def preprocess(self, inputs: Any) -> Any:
            raise AssertionError

        def predict(self, inputs: Any) -> Any: ...

        def chat_completions(self, inputs: Any) -> Any:
            return ["chat", inputs]

        def completions(self, inputs: Any) -> Any:
            return ["text", inputs]

        def embeddings(self, inputs: Any) -> Any:
            return ["vectors", inputs]

        def messages(self, inputs: Any) -> Any:
            return ["messages", inputs]

        def responses(self, inputs: Any) -> Any:
            return ["responses", inputs]

    app = serve(Model)
    for path, word in [
        ("chat/completions", "chat"),
        ("completions", "text"),
        ("embeddings", "vectors"),
        ("messages", "messages"),
        ("responses", "responses"),
    ]:
        assert (await post(app, {"a": 1}, "/v1/" + path)).json() == [word, {"a": 1}]


async def test_a_method_that_is_not_there_is_404(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any: ...

    app = serve(Model)
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/responses",
    ):
        assert "is not implemented" in error(await post(app, path=path), 404)


async def test_a_request_only_model_reads_the_body_itself(serve: ServeModel) -> None:
    class Model:
        async def predict(self, request: Request) -> Any:
            chunks = [chunk async for chunk in request.stream()]
            return [(await request.body()).decode(), b"".join(chunks).decode(), request.url.path]

    assert (await post(serve(Model), b"no JSON")).json() == ["no JSON", "no JSON", PREDICT]


async def test_no_parameters(serve: ServeModel) -> None:
    class Model:
        def predict(self) -> Any:
            return "ok"

    app = serve(Model)
    assert (await post(app)).json() == "ok"
    assert "Invalid JSON payload" in error(await post(app, b"{"), 400)


async def test_pydantic_in_and_out(serve: ServeModel) -> None:
    class Order(BaseModel):
        count: int

    class Model:
        def predict(self, order: Order) -> Any:
            return Order(count=order.count + 1)

    app = serve(Model)
    assert (await post(app, {"count": 1})).json() == {"count": 2}
    assert "`count`" in error(await post(app, {"count": "x"}), 400)
    binary = {"content_type": "application/octet-stream; x=y"}
    call = await post(app, msgpack.packb({"count": 4}), **binary)
    assert msgpack.unpackb(call.body) == {"count": 5}
    assert call.headers["content-type"] == "application/octet-stream"
    assert "Invalid msgpack payload" in error(await post(app, b"\xc1", **binary), 400)


async def test_generators_stream(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Iterator[Any]:
            assert threading.current_thread().name.startswith("llgtrt-model-sync")
            yield "é"
            yield b"b"

        async def completions(self, inputs: Any) -> AsyncIterator[Any]:
            yield "x"
            await asyncio.sleep(0)
            yield b"y"

    app = serve(Model)
    call = await post(app)
    assert call.body == "éb".encode()
    assert call.headers["content-type"] == "application/octet-stream"
    assert [message["body"] for message in call.messages[1:3]] == ["é".encode(), b"b"]
    assert (await post(app, path="/v1/completions")).body == b"xy"
    joined = await post(app, accept="application/json")
    assert joined.json() == "éb"
    assert joined.headers["content-type"] == "application/json"
    assert (await post(app, accept="application/json, */*")).body == "éb".encode(), "exactly"
    openai = await post(app, accept="application/json", user_agent="OpenAI/Python 1.0")
    assert openai.body == "éb".encode(), "its clients say that they accept JSON when they stream"


async def test_responses_pass_through(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any:
            return PlainTextResponse("text", status_code=418, headers={"x-a": "b"})

        async def completions(self, inputs: Any) -> Any:
            async def chunks() -> AsyncIterator[str]:
                yield "one "
                yield "two"

            return StreamingResponse(chunks(), media_type="text/event-stream")

    app = serve(Model)
    call = await post(app)
    assert (call.status, call.body, call.headers["x-a"]) == (418, b"text", "b")
    streamed = await post(app, path="/v1/completions")
    assert streamed.body == b"one two"
    assert streamed.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("what", ["generator", "response"])
async def test_a_stream_or_response_with_postprocess_is_an_error(
    serve: ServeModel, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any:
            return (x for x in "ab") if what == "generator" else JSONResponse({})

        def postprocess(self, result: Any) -> Any:
            raise AssertionError

    assert "Internal Server Error" in error(await post(serve(Model)), 500)
    assert "you cannot use postprocessing" in caplog.text
    assert what in caplog.text


async def test_the_user_s_exception_is_told_to_the_log_only(
    serve: ServeModel, caplog: pytest.LogCaptureFixture
) -> None:
    class Model:
        def predict(self, kind: str) -> Any:
            if kind == "exit":
                raise SystemExit(3)
            if kind == "stop":
                raise StopIteration
            if kind == "unwritable":
                return object()
            raise RuntimeError("internals")

        async def completions(self, kind: str) -> Any:
            if kind == "cancelled":
                raise asyncio.CancelledError
            return self.predict(kind)

        async def responses(self, inputs: Any) -> AsyncIterator[str]:
            yield str(1 // inputs.get("zero", 0))

    app = serve(Model)
    for path in (PREDICT, "/v1/completions"):
        for kind in ("raise", "exit", "stop", "unwritable", "cancelled"):
            message = error(await post(app, json.dumps(kind).encode(), path), 500)
            assert message == "Internal Server Error (in model/chainlet)."
    assert error(await post(app, path="/v1/responses"), 500) == "Internal Server Error (in model/chainlet)."
    assert "RuntimeError: internals" in caplog.text
    assert "test_routes.py" in caplog.text
    caplog.clear()


async def test_http_exceptions_pass_through(serve: ServeModel) -> None:
    class Model:
        async def predict(self, inputs: Any) -> Any:
            raise HTTPException(402, "Pay first.", {"x-price": "1"})

        def completions(self, inputs: Any) -> Any:
            raise HTTPException(400, {"why": ["list"]})

    app = serve(Model)
    call = await post(app)
    assert error(call, 402) == "Pay first."
    assert call.headers["x-price"] == "1"
    assert (await post(app, path="/v1/completions")).json() == {"error": {"why": ["list"]}}


async def test_a_failure_behind_the_first_chunk_cuts_the_connection(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Iterator[str]:
            yield "a"
            raise RuntimeError

    cut: list[bool] = []
    call = AsgiCall(serve(Model), PREDICT, {}, extensions={"llgtrt.abort": lambda: cut.append(True)})
    await call.done()
    assert call.status == 200
    assert not call.complete, "the client must not take it for a whole answer"
    assert cut == [True]


async def test_limits_of_bodies_hold(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any:
            return None

    app = serve(Model)
    assert "larger than" in error(await post(app, b'"' + b"x" * 20_000 + b'"'), 413)
    assert "Encoded" in error(await post(app, content_encoding="gzip"), 415)
    assert (await post(app, content_type="text/plain")).json() is None


async def test_the_openapi_document_has_the_routes(serve: ServeModel) -> None:
    class Model:
        def predict(self, inputs: Any) -> Any: ...

    document = (await AsgiCall(serve(Model), "/openapi.json", method="GET").done()).json()
    assert "post" in document["paths"]["/v1/models/{name}:predict"]
    assert "Call chat_completions" in document["paths"]["/v1/chat/completions"]["post"]["summary"]
