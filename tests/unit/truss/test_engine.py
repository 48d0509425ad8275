"""``trt_llm["engine"]`` as a model's code uses it, on a fake engine."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import HTTPException, Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from llgtrt.engine import OverloadedError, new_error
from llgtrt.truss.engine import Engine
from support.asgi import AsgiCall
from support.fake_engine import FakeChoice, FakeDelta, FakeHandle, FakeNativeEngine, FakeUsage
from support.server import wait_until

from .conftest import ServeModel

PREDICT = "/v1/models/m:predict"
MESSAGES = [{"role": "user", "content": "Hi"}]


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, "the condition of the test")


async def submitted(native: FakeNativeEngine, count: int = 1) -> FakeHandle:
    """The last of so many generations that a model started."""
    await until(lambda: len(native.handles) == count)
    return native.handles[-1]


def finish(handle: FakeHandle, *choices: FakeChoice) -> None:
    handle.put(FakeDelta(list(choices), FakeUsage()), last=True)


class Base:
    """Keeps the engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine


class Echo(Base):
    """Gives the engine's answer through."""

    async def predict(self, body: Any, request: Request) -> Any:
        return await self.engine.predict(body, request)

    async def chat_completions(self, body: Any) -> Any:
        return await self.engine.chat_completions(model_input=body)

    async def completions(self, body: Any, request: Request) -> Any:
        return await self.engine.completions(request=request, model_input=body)


async def test_a_response_has_openai_s_members(serve: ServeModel, native: FakeNativeEngine) -> None:
    seen: list[Any] = []

    class Model(Base):
        async def predict(self, body: Any, request: Request) -> Any:
            response = await self.engine.chat_completions(request=request, model_input=body)
            assert not isinstance(response, StreamingResponse)
            seen.append(response)
            response.choices[0].index = 7
            response.usage.completion_tokens += 1
            response.choices = [response.choices[0], response.choices[0].model_copy(update={"index": 8})]
            return response.model_dump()

    async with AsgiCall(serve(Model), PREDICT, {"messages": MESSAGES}) as call:
        finish(await submitted(native), FakeChoice(0, "Hello"))
        body = (await call.done()).json()
    assert body["object"] == "chat.completion"
    assert [choice["index"] for choice in body["choices"]] == [7, 8]
    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Hello", "refusal": None}
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert seen[0].choices[0].message.content == "Hello"
    assert seen[0].choices[0].message.tool_calls is None, "readable where the answer has none"


COMMON = {"index", "logprobs", "finish_reason", "stop_reason"}


@pytest.mark.parametrize(
    ("path", "body", "member"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}, "message"),
        ("/v1/completions", {"prompt": "Hi"}, "text"),
        (PREDICT, {"prompt": "Hi"}, "text"),
        (PREDICT, {"messages": MESSAGES}, "message"),
    ],
)
async def test_its_json_is_that_of_the_server_s_own_route(
    serve: ServeModel, native: FakeNativeEngine, path: str, body: dict[str, Any], member: str
) -> None:
    async with AsgiCall(serve(Echo), path, body) as call:
        finish(await submitted(native), FakeChoice(0, "x"))
        answer = (await call.done()).json()
    assert set(answer) == {"id", "object", "created", "model", "system_fingerprint", "choices", "usage"}
    assert set(answer["choices"][0]) == {*COMMON, member}


async def test_messages(serve: ServeModel, native: FakeNativeEngine) -> None:
    """A conversation in Anthropic's form, streamed or not; a route that the server does not have."""

    class Model(Base):
        async def predict(self, body: Any, request: Request) -> Any:
            return await self.engine._by_route("/v1/nothing", body, request)

        async def messages(self, body: Any, request: Request) -> Any:
            return await self.engine.messages(body, request)

    app = serve(Model)
    assert (await AsgiCall(app, PREDICT, {}).done()).status == 404
    body = {"model": "fake", "max_tokens": 5, "messages": MESSAGES}
    async with AsgiCall(app, "/v1/messages", body) as call:
        finish(await submitted(native), FakeChoice(0, "Hello"))
        answer = (await call.done()).json()
    assert answer["type"] == "message"
    assert answer["content"] == [{"type": "text", "text": "Hello"}]
    async with AsgiCall(app, "/v1/messages", {**body, "stream": True}) as call:
        finish(await submitted(native, 2), FakeChoice(0, "Hello"))
        await call.done()
    assert call.body.startswith(b"event: message_start\n")
    assert b"event: message_stop\n" in call.body


async def test_responses(serve: ServeModel, native: FakeNativeEngine) -> None:
    """The Responses API: the object, a stream, and one in the background, which is answered at once."""

    class Model(Base):
        async def predict(self, body: Any) -> Any: ...

        async def responses(self, body: Any, request: Request) -> Any:
            response = await self.engine.responses(body, request)
            return response if isinstance(response, StreamingResponse) else response.model_dump()

    app, body = serve(Model), {"model": "fake", "input": "Hi"}
    async with AsgiCall(app, "/v1/responses", body) as call:
        finish(await submitted(native), FakeChoice(0, "Hello"))
        answer = (await call.done()).json()
    assert (answer["object"], answer["status"]) == ("response", "completed")
    async with AsgiCall(app, "/v1/responses", {**body, "stream": True}) as call:
        finish(await submitted(native, 2), FakeChoice(0, "Hello"))
        await call.done()
    assert call.body.startswith(b"event: response.created\n")
    assert b"event: response.completed\n" in call.body
    queued = await AsgiCall(app, "/v1/responses", {**body, "background": True}).done()
    assert queued.json()["status"] == "queued"


async def test_a_pydantic_body(serve: ServeModel, native: FakeNativeEngine) -> None:
    class Body(BaseModel):
        messages: list[dict[str, str]]
        max_tokens: int | None = None
        temperature: float | None = None

    class Model(Base):
        async def predict(self, body: Any) -> Any:
            return await self.engine.chat_completions(Body(messages=MESSAGES, max_tokens=0))

    call = await AsgiCall(serve(Model), PREDICT, {}).done()
    assert call.json() == {"error": "An answer must have room for at least one token."}


async def test_a_stream_gives_one_event_at_a_time(serve: ServeModel, native: FakeNativeEngine) -> None:
    events: list[bytes] = []

    class Model(Base):
        async def predict(self, body: Any, request: Request) -> AsyncIterator[bytes]:
            response = await self.engine.predict(body, request)
            assert isinstance(response, StreamingResponse)
            async for event in response.body_iterator:
                assert isinstance(event, bytes)
                events.append(event)
                yield event

    async with AsgiCall(serve(Model), PREDICT, {"prompt": "a", "stream": True}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await until(lambda: len(events) == 1)
        handle.put(b"data: 2\n\ndata: [DONE]\n\n", last=True)
        assert (await call.done()).body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert events == [b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]


async def test_a_stream_may_be_returned_as_it_is(serve: ServeModel, native: FakeNativeEngine) -> None:
    async with AsgiCall(serve(Echo), "/v1/chat/completions", {"messages": MESSAGES, "stream": True}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
    assert call.headers["content-type"].startswith("text/event-stream")
    assert call.headers["cache-control"] == "no-cache"
    assert call.body == b"data: 1\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_server_refuses_has_its_status(
    serve: ServeModel, native: FakeNativeEngine, stream: bool
) -> None:
    app = serve(Echo)

    async def post(body: dict[str, Any]) -> AsgiCall:
        return await AsgiCall(app, PREDICT, {**body, "stream": stream}).done()

    wrong = await post({"messages": []})
    assert wrong.status == 400
    assert wrong.json() == {"error": "messages: must not be empty."}
    assert (await post({"prompt": "a", "model": "other"})).status == 404
    native.places = 0
    full = await post({"prompt": "a"})
    assert full.status == 503
    assert full.headers["retry-after"] == "1"
    native.places = 1000
    async with AsgiCall(app, PREDICT, {"prompt": "a", "stream": stream}) as call:
        (await submitted(native)).put(FakeDelta(error=new_error(OverloadedError, "Busy.")), last=True)
        await call.done()
    assert (call.status, call.json()) == (503, {"error": "Busy."})


async def test_a_model_may_catch_what_the_server_refuses(serve: ServeModel) -> None:
    class Model(Base):
        async def predict(self, body: Any) -> Any:
            try:
                await self.engine.predict({"prompt": 5})
            except HTTPException as error:
                return [error.status_code, error.detail]

    call = await AsgiCall(serve(Model), PREDICT, {}).done()
    assert call.json()[0] == 400


async def test_what_is_not_json_is_an_error(serve: ServeModel) -> None:
    class Model(Base):
        async def predict(self, body: Any) -> Any:
            return await self.engine.predict({"prompt": object()})

    call = await AsgiCall(serve(Model), PREDICT, {}).done()
    assert call.status == 400
    assert "not JSON" in call.json()["error"]


async def test_an_error_within_a_stream_is_an_event(serve: ServeModel, native: FakeNativeEngine) -> None:
    async with AsgiCall(serve(Echo), "/v1/completions", {"prompt": "a", "stream": True}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        handle.put(FakeDelta(error=new_error(OverloadedError, "Busy.")), last=True)
        await call.done()
    first, failure, done = call.body.split(b"\n\n")[:3]
    assert first == b"data: 1"
    assert b'"Busy."' in failure
    assert done == b"data: [DONE]"


@pytest.mark.parametrize("path", [PREDICT, "/v1/chat/completions"])
async def test_a_generation_ends_with_its_client(
    serve: ServeModel, native: FakeNativeEngine, path: str
) -> None:
    """Also where the model does not pass its request on."""
    async with AsgiCall(serve(Echo), path, {"messages": MESSAGES}) as call:
        handle = await submitted(native)
        call.disconnect()
        await call.done()
    assert handle.cancelled
    assert call.status == 499


async def test_all_generations_of_a_client_end_with_it(serve: ServeModel, native: FakeNativeEngine) -> None:
    class Model(Base):
        async def predict(self, body: Any, request: Request) -> Any:
            return await asyncio.gather(*(self.engine.predict({"prompt": str(i)}, request) for i in range(3)))

    async with AsgiCall(serve(Model), PREDICT, {}) as call:
        await submitted(native, 3)
        call.disconnect()
        await call.done()
        await until(lambda: all(handle.cancelled for handle in native.handles))


async def test_a_stream_ends_with_its_client(serve: ServeModel, native: FakeNativeEngine) -> None:
    async with AsgiCall(serve(Echo), PREDICT, {"prompt": "a", "stream": True}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        call.disconnect()
        await call.done()
        await until(lambda: handle.cancelled)


@pytest.mark.parametrize("way", ["close", "break", "never read"])
async def test_a_stream_ends_where_the_model_leaves_it(
    serve: ServeModel, native: FakeNativeEngine, way: str
) -> None:
    class Model(Base):
        async def predict(self, body: Any, request: Request) -> Any:
            response = await self.engine.predict(body, request)
            assert isinstance(response, StreamingResponse)
            if way == "close":
                await response.body_iterator.aclose()  # type: ignore[attr-defined]
                return None
            if way == "break":
                async for _ in response.body_iterator:
                    break
            del response
            gc.collect()
            return None

    async with AsgiCall(serve(Model), PREDICT, {"prompt": "a", "stream": True}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.done()
        await until(lambda: handle.cancelled)


async def test_a_cancelled_call_cancels_its_generation(serve: ServeModel, native: FakeNativeEngine) -> None:
    class Model(Base):
        async def predict(self, body: Any, request: Request) -> Any:
            call = asyncio.ensure_future(self.engine.predict(body, request))
            await submitted(native)
            call.cancel()
            return (await asyncio.gather(call, return_exceptions=True))[0].__class__.__name__

    async with AsgiCall(serve(Model), PREDICT, {"prompt": "a"}) as call:
        assert (await call.done()).json() == "CancelledError"
        await until(lambda: native.handles[0].cancelled)


async def test_a_synchronous_method_may_run_a_loop_of_its_own(
    serve: ServeModel, native: FakeNativeEngine
) -> None:
    class Model(Base):
        def predict(self, body: Any, request: Request) -> Any:
            assert threading.current_thread().name.startswith("llgtrt-model-sync")
            answer: Any = asyncio.run(self.engine.predict(body, request))
            return answer.model_dump()

    async with AsgiCall(serve(Model), PREDICT, {"prompt": "a"}) as call:
        finish(await submitted(native), FakeChoice(0, "x"))
        assert (await call.done()).json()["choices"][0]["text"] == "x"
