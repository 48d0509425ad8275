"""No request keeps the event loop from its other work, whichever of its fields is large."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from llgtrt.api import body as body_module
from llgtrt.chat import ChatTemplate
from llgtrt.serving import chat as chat_module
from llgtrt.serving.apis import llamacpp as llamacpp_module
from llgtrt.serving.apis import messages as messages_module
from llgtrt.serving.apis.responses import service as responses_service
from llgtrt.serving.completion import CompletionService
from llgtrt.serving.offload import INLINE_BYTES
from support.asgi import AsgiCall
from support.fake_engine import AppFactory, FakeNativeEngine, settle

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
RESPONSES = "/v1/responses"
TOKENIZE = "/tokenize"
LLAMA = "/completion"
LONG = "x" * (2 * INLINE_BYTES)


def messages(**assistant: Any) -> dict[str, Any]:
    answer = {"role": "assistant", "content": "a", **assistant}
    return {"messages": [{"role": "user", "content": "q"}, answer, {"role": "user", "content": "r"}]}


def call(arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "content": (CHAT, messages(content=LONG)),
    "arguments": (CHAT, messages(tool_calls=[call(json.dumps({"a": LONG}))])),
    "reasoning": (CHAT, messages(reasoning_content=LONG)),
    "parts": (CHAT, messages(content=[{"type": "text", "text": "x"}] * 2000)),
    "schema": (CHAT, {**messages(), "guided_json": {"description": LONG}}),
    "metadata": (CHAT, {**messages(), "metadata": {"a": LONG}}),
    "blocks": (
        MESSAGES,
        {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 2000}]},
    ),
    "items": (RESPONSES, {"input": [{"role": "user", "content": "x"}] * 900}),
    "tokenized": (TOKENIZE, {"prompt": LONG}),
    "counted": (COUNT, {"messages": [{"role": "user", "content": LONG}]}),
    "text": (COMPLETIONS, {"prompt": LONG}),
    "tokens": (COMPLETIONS, {"prompt": [[1] * 900] * 20}),
    "llama": (LLAMA, {"prompt": LONG}),
}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Thread]:
    """The thread on which each kind of work on a request was done last."""
    seen: dict[str, threading.Thread] = {}

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            seen[name] = threading.current_thread()
            return work(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(body_module, "parse_request")
    watch(chat_module, "resolve_constraint")
    watch(ChatTemplate, "render")
    watch(messages_module, "translate")
    watch(llamacpp_module, "completion")
    watch(responses_service, "translate")
    watch(FakeNativeEngine, "tokenize")
    watch(CompletionService, "_plan")
    watch(CompletionService, "_generate_request")
    return seen


WORK = {
    CHAT: {"parse_request", "resolve_constraint", "render"},
    MESSAGES: {"parse_request", "translate", "resolve_constraint", "render"},
    RESPONSES: {"parse_request", "translate", "resolve_constraint", "render"},
    TOKENIZE: {"parse_request", "tokenize"},
    COUNT: {"parse_request", "translate", "resolve_constraint", "render", "tokenize"},
    COMPLETIONS: {"parse_request", "_plan", "_generate_request"},
    LLAMA: {"parse_request", "completion", "_plan", "_generate_request"},
}


async def submitted(native: FakeNativeEngine, task: asyncio.Task[Any]) -> int:
    """Turns of the loop until the request has reached the core."""
    turns = 0
    while not native.handles:
        assert not task.done()
        turns += 1
        await asyncio.sleep(0)
    return turns


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_large_request_is_worked_on_elsewhere(
    make_app: AppFactory, native: FakeNativeEngine, threads: dict[str, threading.Thread], name: str
) -> None:
    path, fields = HOSTILE[name]
    app = make_app()
    threads.clear()
    async with AsgiCall(app, path, fields) as request:
        if path in (COUNT, TOKENIZE):
            await request.done()
        else:
            await submitted(native, request.task)
        assert set(threads) == WORK[path]
        assert threading.main_thread() not in threads.values()


@pytest.mark.parametrize(("path", "fields"), [(CHAT, messages()), (COMPLETIONS, {"prompt": [1, 2]})])
async def test_a_small_one_needs_no_thread(
    make_app: AppFactory,
    native: FakeNativeEngine,
    threads: dict[str, threading.Thread],
    path: str,
    fields: dict[str, Any],
) -> None:
    app = make_app()
    threads.clear()
    async with AsgiCall(app, path, fields) as request:
        await submitted(native, request.task)
        await settle()
        assert set(threads) == WORK[path]
        assert set(threads.values()) == {threading.main_thread()}


async def test_the_loop_turns_while_many_values_are_read(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    # Far more values than one call of the native parser may read while everybody waits.
    fields = {"prompt": [[1] * 999] * 128}
    async with AsgiCall(make_app(), COMPLETIONS, fields) as request:
        assert await submitted(native, request.task) > 50
