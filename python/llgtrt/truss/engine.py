"""``trt_llm["engine"]``: the server's engine as a model's code calls it.

Calls come from the model's loop and do their work on the server's, in this process: no HTTP, and the same
checks, constraints and queue as a request of a client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from starlette.responses import StreamingResponse

from llgtrt.api.errors import describe, error_event
from llgtrt.api.services import Services
from llgtrt.engine import Stream, StreamCancelledError
from llgtrt.serving import ChatRequest, CompletionRequest, Generation, in_proportion, parse_request
from llgtrt.serving.apis import GenerationRoute

from .client import Client, client_of
from .errors import client_left
from .objects import ChatCompletion, Completion, EngineObject

Body = TypeVar("Body", bound=BaseModel)
Answer = TypeVar("Answer", bound=BaseModel)
Result = TypeVar("Result")

_SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
_END = b"\n\n"


class Engine:
    """The engine. Every method may be awaited on any event loop.

    What the server would refuse with a status is raised as ``fastapi.HTTPException`` with that status. When
    the client of ``request`` leaves, its generations end, and what waits for them raises status 499; without
    ``request`` that is the client of the request that is being worked on.

    Args:
        services: the use cases.
        loop: the server's event loop.
    """

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._one = services.models.find(None)
        self._loop = loop

    async def chat_completions(self, model_input: Any, request: Any = None) -> ChatCompletion | EngineStream:
        """Answers a conversation.

        Args:
            model_input: the body of ``/v1/chat/completions``: an object, or a pydantic model of it.
            request: the request that it is for.

        Returns:
            The response object; with ``stream: true`` a streaming response whose ``body_iterator`` gives
            server-sent events as bytes, one at a time.

        Raises:
            HTTPException: the engine refuses it, or its client left.
        """
        return await self._answer(
            ChatRequest, self._one.chat.start, ChatCompletion, model_input, client_of(request)
        )

    async def completions(self, model_input: Any, request: Any = None) -> Completion | EngineStream:
        """Continues a text: the body of ``/v1/completions``; the rest as :meth:`chat_completions`."""
        return await self._answer(
            CompletionRequest, self._one.completions.start, Completion, model_input, client_of(request)
        )

    async def messages(self, model_input: Any, request: Any = None) -> EngineObject | EngineStream:
        """Answers a conversation in Anthropic's form: the body of ``/v1/messages``."""
        return await self._by_route("/v1/messages", model_input, request)

    async def responses(self, model_input: Any, request: Any = None) -> EngineObject | EngineStream:
        """Answers in the form of OpenAI's Responses: the body of ``/v1/responses``."""
        return await self._by_route("/v1/responses", model_input, request)

    async def predict(
        self, model_input: Any, request: Any = None
    ) -> ChatCompletion | Completion | EngineStream:
        """Whichever of the two the input is for: one with ``messages`` is a conversation."""
        members = _members(model_input)
        if isinstance(members, dict) and "messages" in members:
            return await self.chat_completions(members, request)
        return await self.completions(members, request)

    async def _by_route(self, path: str, model_input: Any, request: Any) -> EngineObject | EngineStream:
        for api in self._services.apis:
            for route in api.routes:
                if isinstance(route, GenerationRoute) and route.path == path:
                    client = client_of(request)
                    return await self._answer(route.request, route.start, EngineObject, model_input, client)
        raise HTTPException(404, f"This server has no {path}.")

    async def _answer(
        self,
        body_type: type[Body],
        start: Callable[[Body], Awaitable[Generation | bytes]],
        answer_type: type[Answer],
        model_input: Any,
        client: Client | None,
    ) -> Answer | EngineStream:
        try:
            body = to_json(_members(model_input))
        except ValueError as error:
            raise HTTPException(400, f"The engine's input is not JSON: {error}.") from error

        async def run() -> dict[str, Any] | _Events:
            request = await in_proportion(len(body), parse_request, body_type, body)
            generation = await start(request)
            if isinstance(generation, bytes):
                return await in_proportion(len(generation), from_json, generation)
            if generation.streaming:
                return await _Events.begin(generation, self._loop, client)
            try:
                delta = await generation.stream.result()
                answer = await generation.response(delta)
                return await in_proportion(len(answer), from_json, answer)
            except StreamCancelledError:
                raise
            except Exception as error:
                raise generation.explain(error) from error

        result = await self._on_server(_while_client_waits(run(), client))
        return EngineStream(result) if isinstance(result, _Events) else answer_type.model_validate(result)

    async def _on_server(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class EngineStream(StreamingResponse):
    """A streamed answer: a response that may be returned as it is, or read by ``body_iterator``."""

    def __init__(self, events: _Events) -> None:
        super().__init__(events, headers=_SSE_HEADERS, media_type="text/event-stream")


class _Events(AsyncIterator[bytes]):
    """The server-sent events of a generation, one at a time, for a reader on any loop.

    Closing it, or letting go of it, ends the generation.
    """

    def __init__(
        self, generation: Generation, loop: asyncio.AbstractEventLoop, client: Client | None
    ) -> None:
        self._generation = generation
        self._stream = generation.stream
        self._loop = loop
        self._client = client
        self._ready: deque[bytes] = deque()
        self._failure: Exception | None = None
        if client is not None:
            client.hold(self._stream.cancel)

    @classmethod
    async def begin(
        cls, generation: Generation, loop: asyncio.AbstractEventLoop, client: Client | None
    ) -> _Events:
        """Waits for the first event: what comes in its place is an error with a status."""
        events = cls(generation, loop, client)
        await events._fill()
        if events._failure is not None and not events._ready:
            raise events._failure
        return events

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> bytes:
        if not self._ready:
            if self._stream.finished and self._failure is None:
                raise StopAsyncIteration
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._next(), self._loop))
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Ends the generation."""
        self._ready.clear()
        self._failure = None
        self._loop.call_soon_threadsafe(self._stream.cancel)

    def __del__(self) -> None:
        if not self._stream.finished and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stream.cancel)

    async def _next(self) -> None:
        """On the server's loop: the next events, or the one that says what went wrong."""
        if self._failure is None:
            await self._fill()
        if self._failure is not None and not self._ready:
            failure, self._failure = self._failure, None
            if isinstance(failure, StreamCancelledError):
                raise client_left("body_iterator")
            told, _headers = describe(failure)
            output = self._generation.output
            self._ready += _split(error_event(told) if output is None else output.failed(told))

    async def _fill(self) -> None:
        stream, generation = self._stream, self._generation
        try:
            while not (self._ready or _is_finished(stream)):
                payload = await stream.next()
                if payload is None:
                    continue
                if isinstance(payload, bytes):
                    self._ready += _split(payload)
                    continue
                if generation.output is not None:
                    last = _is_finished(stream) and payload.error is None
                    self._ready += _split(await generation.encode(payload, last))
                if payload.error is not None:
                    raise payload.error
        except StreamCancelledError as error:
            self._failure = error
        except Exception as error:
            self._failure = generation.explain(error)
        if self._client is not None and self._stream.finished:
            self._client.release(stream.cancel)


def _is_finished(stream: Stream) -> bool:
    """Asked again after each wait."""
    return stream.finished


def _split(payload: bytes) -> list[bytes]:
    """The events of a payload, each with its empty line."""
    return [event + _END for event in payload.split(_END) if event]


def _members(model_input: Any) -> Any:
    if isinstance(model_input, BaseModel):
        return model_input.model_dump(mode="json", exclude_none=True)
    return model_input


async def _while_client_waits(work: Coroutine[Any, Any, Result], client: Client | None) -> Result:
    """The result of ``work`` on the server's loop; status 499 as soon as the client leaves.

    Raises:
        HTTPException: any other failure, with the status that a client would get.
    """
    if client is not None and _has_left(client):
        work.close()
        raise client_left("engine")
    task = asyncio.ensure_future(work)
    if client is not None:
        client.hold(task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        if client is None or not _has_left(client):
            raise
        raise client_left("engine") from None
    except StreamCancelledError:
        raise client_left("engine") from None
    except HTTPException:
        raise
    except Exception as error:
        told, headers = describe(error)
        raise HTTPException(told.status, told.message, headers) from error
    finally:
        if client is not None:
            client.release(task.cancel)


def _has_left(client: Client) -> bool:
    """Asked again after each wait."""
    return client.left
