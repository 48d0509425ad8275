"""The use cases behind ``/v1/responses``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import StreamCancelledError
from llgtrt.serving.apis.api import explained
from llgtrt.serving.apis.responses.encode import Keep, ResponsesEncoder
from llgtrt.serving.apis.responses.items import new_id
from llgtrt.serving.apis.responses.request import InputTokensRequest, ResponsesRequest
from llgtrt.serving.apis.responses.store import ResponseStore, StoredResponse, stored_json
from llgtrt.serving.apis.responses.translate import Translated, translate
from llgtrt.serving.chat import ChatService
from llgtrt.serving.errors import NotFoundError, RequestError, quote
from llgtrt.serving.generation import Generation
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.output import AnswerHead
from llgtrt.serving.protocol.constraint import json_text
from llgtrt.serving.registry import Models
from llgtrt.serving.tokens import TOO_LONG

MOST_LISTED = 100
DEFAULT_LISTED = 20
FAILED = {"code": "server_error", "message": "The response could not be generated."}


class ResponsesService:
    """Responses of the models. What one has stored another may go on with.

    Args:
        models: answer conversations.
        store: keeps responses.
        timeout_s: the longest response in the background, in seconds.
    """

    def __init__(self, models: Models, store: ResponseStore, timeout_s: float | None) -> None:
        self._models = models
        self._store = store
        self._timeout_s = timeout_s
        self._running: dict[str, tuple[Generation, asyncio.Task[None]]] = {}
        """Those in the background. Each has its place in the core's queue, which bounds them."""

    async def start(self, request: ResponsesRequest) -> Generation | bytes:
        """Begins a response; one in the background is answered with its object at once.

        Raises:
            RequestError, LlgtrtError: as ``ChatService.start``.
            NotFoundError: a response or an item that it names is not stored.
        """
        chat = self._models.find(request.model).chat
        size = self._size(request)
        asked = await in_proportion(size, translate, request, self._store)
        if request.background and not asked.keeps:
            raise RequestError("background: this server stores no responses.", "background")
        asked.chat._body_bytes = size
        if request.truncation == "auto":
            await self._shorten(asked, chat)
        name = new_id("resp")
        encoder: ResponsesEncoder | None = None

        def encode(head: AnswerHead) -> ResponsesEncoder:
            nonlocal encoder
            keep: Keep = _forget
            if asked.keeps:
                keep = partial(self._keep, name, asked.items, bool(request.background))
            encoder = ResponsesEncoder(head, echo=asked.echo, keep=keep)
            return encoder

        generation = await explained(asked.places, chat.start(asked.chat, encode, response_id=name))
        assert encoder is not None
        if not request.background:
            return generation
        first = encoder.response("queued")
        if not self._store.put(name, StoredResponse(first, asked.items)):
            generation.stream.cancel()
            raise RequestError("background: the conversation is too large for this server's store.", "input")
        task = asyncio.get_running_loop().create_task(self._work(name, generation))
        self._running[name] = generation, task
        return first

    async def count(self, request: InputTokensRequest) -> bytes:
        """The number of tokens of the prompt that a response would have.

        Raises:
            RequestError, LlgtrtError: as ``ChatService.prompt_tokens``.
        """
        chat = self._models.find(request.model).chat
        size = self._size(request)
        asked = await in_proportion(size, translate, request, self._store)
        asked.chat._body_bytes = size
        try:
            tokens = await chat.prompt_tokens(asked.chat)
        except RequestError as error:
            raise asked.places.explain(error) from error
        return to_json({"object": "response.input_tokens", "input_tokens": len(tokens)})

    async def get(self, arguments: Mapping[str, str]) -> bytes:
        """A stored response.

        Raises:
            NotFoundError: it is not here.
            RequestError: its events are asked for, which are not kept.
        """
        if arguments.get("stream", "false").lower() not in ("false", "0"):
            raise RequestError("stream: the events of a response are not kept.", "stream")
        return self._entry(arguments).response

    async def delete(self, arguments: Mapping[str, str]) -> bytes:
        """Removes a stored response; one that is being made ends.

        Raises:
            NotFoundError: it is not here.
        """
        name = arguments["response_id"]
        if not self._store.delete(name):
            raise _not_found(name)
        if name in self._running:
            self._running[name][0].stream.cancel()
        return to_json({"id": name, "object": "response", "deleted": True})

    async def cancel(self, arguments: Mapping[str, str]) -> bytes:
        """Ends a response in the background; one that is complete stays as it is.

        Raises:
            NotFoundError: it is not here.
            RequestError: it is none in the background.
        """
        name = arguments["response_id"]
        running = self._running.get(name)
        if running is not None:
            generation, task = running
            generation.stream.cancel()
            await asyncio.wait({task})
        entry = self._entry(arguments)
        response = await in_proportion(len(entry.response), stored_json, entry.response)
        if not response["background"]:
            message = "Only a response that was begun with background can be cancelled; close the connection."
            raise RequestError(message, "response_id")
        return entry.response

    async def input_items(self, arguments: Mapping[str, str]) -> bytes:
        """What the model was given, instructions apart, as a page of a list: the newest first.

        Raises:
            NotFoundError: it is not here.
            RequestError: an argument is wrong.
        """
        entry = self._entry(arguments)
        limit = arguments.get("limit", str(DEFAULT_LISTED))
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MOST_LISTED):
            raise RequestError(f"limit must be an integer from 1 to {MOST_LISTED}.", "limit")
        order = arguments.get("order", "desc")
        if order not in ("asc", "desc"):
            raise RequestError("order must be 'asc' or 'desc'.", "order")
        return await in_proportion(len(entry.items), _page, entry, int(limit), order, arguments.get("after"))

    def _entry(self, arguments: Mapping[str, str]) -> StoredResponse:
        name = arguments["response_id"]
        entry = self._store.get(name)
        if entry is None:
            raise _not_found(name)
        return entry

    def _size(self, request: InputTokensRequest) -> int:
        """How much a request is to be translated, with what is stored of its conversation."""
        entry = (
            None if request.previous_response_id is None else self._store.get(request.previous_response_id)
        )
        stored = 0 if entry is None else len(entry.response) + len(entry.items)
        # A reference is short, and what it refers to may be long: it is worked on elsewhere.
        references = request.input if isinstance(request.input, list) else ()
        if any(
            isinstance(item, dict) and item.get("type") in (None, "item_reference") for item in references
        ):
            stored += self._store.size
        return request.body_bytes + stored

    def _keep(
        self, name: str, items: bytes, background: bool, response: bytes, output_ids: tuple[str, ...]
    ) -> None:
        entry = StoredResponse(response, items, output_ids)
        # One in the background may have been deleted meanwhile.
        if background:
            self._store.replace(name, entry)
        else:
            self._store.put(name, entry)

    async def _work(self, name: str, generation: Generation) -> None:
        """Waits for a response in the background and keeps it."""
        changes: dict[str, Any]
        try:
            delta = await asyncio.wait_for(generation.stream.result(), self._timeout_s)
            await generation.response(delta)
            return
        except StreamCancelledError:
            changes = {"status": "cancelled"}
        except asyncio.CancelledError:
            raise
        except Exception as failure:
            error = generation.explain(failure)
            message = getattr(error, "message", None)
            shown = FAILED if message is None else {**FAILED, "message": message}
            changes = {"status": "failed", "error": shown}
        finally:
            generation.stream.cancel()
            self._running.pop(name, None)
        entry = self._store.get(name)
        if entry is not None:
            response = await in_proportion(len(entry.response), _changed, entry.response, changes)
            self._store.replace(name, StoredResponse(response, entry.items))

    async def _shorten(self, asked: Translated, chat: ChatService) -> None:
        """Leaves out the oldest turns until the prompt fits with the answer that is asked for."""
        messages = asked.chat.messages
        head = 1 if messages[0]["role"] in ("system", "developer") else 0
        starts = [index for index in range(head, len(messages)) if messages[index]["role"] == "user"]
        room = chat.context_tokens - max(asked.chat.max_completion_tokens or 1, 1)
        asked_size = asked.chat.body_bytes

        async def fits(start: int) -> bool:
            shorter = asked.chat.model_copy(update={"messages": [*messages[:head], *messages[start:]]})
            shorter._body_bytes = asked_size
            try:
                return len(await chat.prompt_tokens(shorter)) <= room
            except RequestError as error:
                if error.code != TOO_LONG:
                    raise
                return False

        if not starts or await fits(head):
            return
        low, high = 0, len(starts) - 1
        while low < high:
            middle = (low + high) // 2
            if await fits(starts[middle]):
                high = middle
            else:
                low = middle + 1
        dropped = starts[low] - head
        asked.chat.messages = [*messages[:head], *messages[starts[low] :]]
        asked.places.pairs[:] = [(_moved(inner, head, dropped), outer) for inner, outer in asked.places.pairs]


def _moved(inner: str, head: int, dropped: int) -> str:
    """The path of a message after some before it were left out."""
    before, bracket, rest = inner.partition("messages[")
    if not bracket or before:
        return inner
    number, _, after = rest.partition("]")
    index = int(number)
    if index < head:
        return inner
    return f"messages[{index - dropped}]{after}" if index >= head + dropped else "messages[-]"


def _changed(response: bytes, changes: dict[str, Any]) -> bytes:
    return json_text({**stored_json(response), **changes}, "response").encode()


def _page(entry: StoredResponse, limit: int, order: str, after: str | None) -> bytes:
    items: list[dict[str, Any]] = stored_json(entry.items)
    if order == "desc":
        items.reverse()
    if after is not None:
        places = [index for index, item in enumerate(items) if item["id"] == after]
        if not places:
            raise RequestError(f"after: there is no item {quote(after)}.", "after")
        items = items[places[0] + 1 :]
    page = items[:limit]
    return to_json(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > limit,
        }
    )


def _not_found(name: str) -> NotFoundError:
    message = f"There is no stored response {quote(name)}: it was never stored, or it had to go."
    return NotFoundError(message, "response_id", "response_not_found")


def _forget(_response: bytes, _output_ids: tuple[str, ...]) -> None:
    """Of a response that is not to be stored."""
