"""From the engine to the client: headers, pings, errors, clients that leave or do not read."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Any

import pytest

from llgtrt.engine import EngineFailedError, GrammarError, InternalError, OverloadedError, new_error
from llgtrt.serving.offload import INLINE_BYTES
from llgtrt.serving.output import EncodedAnswer
from support.asgi import AsgiCall
from support.fake_engine import (
    AppFactory,
    FakeChoice,
    FakeDelta,
    FakeHandle,
    FakeNativeEngine,
    FakeSummary,
    FakeUsage,
    settle,
)
from support.wait import eventually

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}
STREAM = {**CHAT, "stream": True}
ROUTE = "/v1/chat/completions"


async def submitted(native: FakeNativeEngine) -> FakeHandle:
    """The request's handle, once the application has submitted it and waits."""
    for _ in range(100):
        await asyncio.sleep(0)
        if native.handles and native.handles[-1].takes:
            return native.handles[-1]
    raise AssertionError("nothing was submitted")


class FakeOutlet:
    """A connection without a socket, which may refuse what it is to write."""

    written_at = 0.0

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.paused = False

    def write(self, body: bytes) -> bool:
        if not self.paused:
            self.written.append(body)
        return not self.paused

    def write_rest(self, data: bytes) -> None:
        self.written.append(data)

    def socket(self) -> int | None:
        return None


def disconnects(app: Any, reason: str) -> float:
    value = app.state.services.metrics.registry.get_sample_value(
        "llgtrt_http_disconnects_total", {"reason": reason}
    )
    assert value is not None
    return float(value)


async def test_chunks_are_written_as_the_core_made_them(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        handle.put(b"data: 2\n\ndata: [DONE]\n\n", last=True)
        await call.done()
    assert call.status == 200
    assert call.headers["content-type"].startswith("text/event-stream")
    assert call.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert [message["more_body"] for message in call.messages[1:]] == [True, False]


async def test_chunks_go_straight_to_the_connection_where_the_server_offers_it(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    outlet = FakeOutlet()
    async with AsgiCall(make_app(), ROUTE, STREAM, extensions={"llgtrt.outlet": lambda: outlet}) as call:
        handle = await submitted(native)
        handle.put(b"1")
        await call.until(2)
        await settle()
        handle.put(b"2")
        await settle()
        outlet.paused = True
        handle.put(b"3")
        await call.until(3)
        await settle()
        outlet.paused = False
        handle.put(b"4")
        await settle()
        handle.put(b"5", last=True)
        await call.done()
    assert outlet.written == [b"2", b"4"]
    assert call.body == b"135"
    assert call.complete


async def test_the_core_stops_writing_before_a_ping(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app(ping_interval_s=0.05)
    async with AsgiCall(app, ROUTE, STREAM, extensions={"llgtrt.outlet": FakeOutlet}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        stops = handle.stops
        await call.until(3)
        assert handle.stops > stops
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
    assert b": ping\n\n" in call.body


async def test_no_ping_where_the_core_has_just_written(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    app = make_app(ping_interval_s=0.05)
    async with AsgiCall(app, ROUTE, STREAM, extensions={"llgtrt.outlet": FakeOutlet}) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        handle.ago_s = 0.0
        asked = handle.asked_ago
        await eventually(lambda: handle.asked_ago >= asked + 4)
        assert b"ping" not in call.body
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()


async def test_p19_headers_wait_for_the_first_payload(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        await settle()
        assert not call.started
        error = new_error(GrammarError, "bad keyword", "response_format.json_schema.schema.properties.a")
        handle.put(FakeDelta(error=error), last=True)
        await call.done()
    assert call.status == 400
    assert call.error["param"] == "response_format.json_schema.schema.properties.a"
    assert call.error["type"] == "invalid_request_error"


async def test_p19_later_errors_are_events(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        handle.put(FakeDelta(error=new_error(EngineFailedError, "The engine failed.")), last=True)
        await call.done()
    assert call.status == 200
    assert call.complete
    assert call.body.endswith(b"data: [DONE]\n\n")
    event = json.loads(call.body.split(b"\n\n")[1].removeprefix(b"data: "))
    assert event["error"]["code"] == "engine_failed"


async def test_p19_later_errors_have_the_form_of_their_api(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with AsgiCall(make_app(), "/v1/messages", body) as call:
        handle = await submitted(native)
        handle.put(FakeDelta([FakeChoice(0, "so far", None)]))
        await call.until(2)
        handle.put(
            FakeDelta(
                [FakeChoice(0, " and on", None)], error=new_error(EngineFailedError, "The engine failed.")
            ),
            last=True,
        )
        await call.done()
    *_, text, error, end = call.body.split(b"\n\n")
    assert b"and on" in text
    name, data = error.split(b"\n")
    assert name == b"event: error"
    error_type = json.loads(data.removeprefix(b"data: "))["error"]["type"]
    assert (error_type, end) == ("overloaded_error", b"")
    assert call.complete


async def test_a_long_answer_is_encoded_elsewhere(
    make_app: AppFactory, native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    encode = EncodedAnswer.encode

    def watched(self: EncodedAnswer, delta: Any, last: bool) -> bytes:
        seen.append(threading.current_thread() is threading.main_thread())
        return encode(self, delta, last)

    monkeypatch.setattr(EncodedAnswer, "encode", watched)
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with AsgiCall(make_app(), "/v1/messages", body) as call:
        handle = await submitted(native)
        handle.put(FakeDelta([FakeChoice(0, "short", None)]))
        await call.until(2)
        handle.put(FakeDelta([FakeChoice(0, "long" * INLINE_BYTES, None)]))
        await call.until(3)
        handle.put(FakeDelta([FakeChoice(0, "", "stop")], FakeUsage()), last=True)
        await call.done()
    assert seen == [True, False, True]


async def test_p23_idle_streams_are_pinged(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with AsgiCall(make_app(ping_interval_s=0.01), ROUTE, STREAM) as call:
        handle = await submitted(native)
        # No payload: headers and pings come all the same.
        await call.until(4)
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
    assert call.body.startswith(b": ping\n\n: ping\n\n")
    assert call.body.endswith(b"data: [DONE]\n\n")


async def test_an_answer_is_one_object(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with AsgiCall(make_app(), ROUTE, CHAT) as call:
        handle = await submitted(native)
        handle.put(
            FakeDelta([FakeChoice(1, "b", "length"), FakeChoice(0, "a")], FakeUsage()),
            last=True,
        )
        await call.done()
    answer = call.json()
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert answer["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "a", "refusal": None},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": None,
    }
    assert answer["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_p20_a_client_that_leaves_frees_its_place(
    make_app: AppFactory, native: FakeNativeEngine, body: Any
) -> None:
    app = make_app()
    async with AsgiCall(app, ROUTE, body) as call:
        handle = await submitted(native)
        call.disconnect()
        await call.done()
    assert handle.cancelled
    assert not call.started
    assert disconnects(app, "disconnected") == 1


async def test_p20_a_client_that_leaves_in_the_middle(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app()
    async with AsgiCall(app, ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        call.disconnect()
        await call.done()
    assert handle.cancelled
    assert disconnects(app, "disconnected") == 1


async def test_a_complete_answer_is_no_disconnect(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app()
    async with AsgiCall(app, ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
        call.disconnect()
        await settle()
    assert not handle.cancelled
    assert disconnects(app, "disconnected") == 0


async def test_a_client_that_does_not_read_is_dropped(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app(write_timeout_s=0.02)
    aborted = asyncio.Event()
    async with AsgiCall(app, ROUTE, STREAM, extensions={"llgtrt.abort": aborted.set}) as call:
        handle = await submitted(native)
        call.reading.clear()
        handle.put(b"data: 1\n\n")
        await call.done()
    assert aborted.is_set()
    assert handle.cancelled
    assert disconnects(app, "slow") == 1


async def test_an_idle_stream_is_not_a_slow_reader(make_app: AppFactory, native: FakeNativeEngine) -> None:
    app = make_app(write_timeout_s=0.01, ping_interval_s=0.01)
    async with AsgiCall(app, ROUTE, STREAM) as call:
        handle = await submitted(native)
        await call.until(10)
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
    assert call.complete
    assert disconnects(app, "slow") == 0


async def test_a_request_that_takes_too_long(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with AsgiCall(make_app(request_timeout_s=0.02), ROUTE, CHAT) as call:
        handle = await submitted(native)
        await call.done()
    assert call.status == 504
    assert call.error["code"] == "request_timeout"
    assert handle.cancelled


async def test_p21_overload_is_503_with_retry_after(make_app: AppFactory, native: FakeNativeEngine) -> None:
    native.places = 3
    async with AsgiCall(make_app(), ROUTE, {**CHAT, "n": 4}) as call:
        await call.done()
    assert call.status == 503
    assert call.error["code"] == "overloaded"
    assert int(call.headers["retry-after"]) > 0


async def test_p21_the_place_is_reserved_before_templating(
    make_app: AppFactory, native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    monkeypatch.setattr(
        app.state.services.models.find(None).chat._prompts._template,
        "render",
        lambda *_, **__: pytest.fail("rendered in vain"),
    )
    native.places = 0
    async with AsgiCall(app, ROUTE, CHAT) as call:
        await call.done()
    assert call.status == 503


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (new_error(OverloadedError, "full"), 503, "overloaded"),
        (new_error(EngineFailedError, "dead"), 503, "engine_failed"),
        (new_error(InternalError, "secret detail"), 500, "internal_error"),
        (RuntimeError("secret detail"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_errors_of_the_core(
    make_app: AppFactory, native: FakeNativeEngine, body: Any, error: Exception, status: int, code: str
) -> None:
    async with AsgiCall(make_app(), ROUTE, body) as call:
        handle = await submitted(native)
        handle.put(FakeDelta(error=error), last=True)
        await call.done()
    assert call.status == status
    assert call.error["code"] == code
    assert "secret" not in call.error["message"]


async def test_structured_output_is_encoded_and_nothing_of_it_is_lost(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    """Also what comes with an error is delivered before it."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {**STREAM, "tools": tools}
    async with AsgiCall(make_app(), ROUTE, body) as call:
        handle = await submitted(native)
        handle.put(FakeDelta([FakeChoice(0, "Hello wor", None)]))
        await call.until(2)
        handle.put(FakeDelta([FakeChoice(0, "ld <tool_call>", None)]))
        await call.until(3)
        error = new_error(InternalError, "broken")
        handle.put(
            FakeDelta([FakeChoice(0, '\n{"name": "f", "arguments": {}', None)], error=error), last=True
        )
        await call.done()
    *events, last, done = call.body.decode().strip().split("\n\n")
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello world"
    assert [call["function"] for delta in deltas for call in delta.get("tool_calls", ())] == [
        {"name": "f", "arguments": ""},
        {"arguments": "{}"},
    ]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "internal_error"


async def test_a_call_that_a_stop_string_cut_is_not_complete(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    text = '<tool_call>\n{"name": "f", "arguments": {"a": 1'
    for ended, reason in (("", "stop"), ("}}\n</tool_call>", "tool_calls")):
        async with AsgiCall(make_app(), ROUTE, {**CHAT, "tools": tools}) as call:
            native.handles.clear()
            handle = await submitted(native)
            handle.put(FakeDelta([FakeChoice(0, text + ended)], FakeUsage()), last=True)
            await call.done()
        (choice,) = call.json()["choices"]
        assert choice["finish_reason"] == reason
        assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"a": 1')


@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_error_names_the_tool(
    make_app: AppFactory, native: FakeNativeEngine, stream: bool
) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    async with AsgiCall(make_app(), ROUTE, {**CHAT, "tools": tools, "stream": stream}) as call:
        handle = await submitted(native)
        error = new_error(GrammarError, "no", "grammars[2].json_schema.properties.a")
        handle.put(FakeDelta(error=error), last=True)
        await call.done()
    assert call.status == 400
    assert call.error["param"] == "tools[1].function.parameters.properties.a"


def request_fields(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (record,) = [record for record in caplog.records if record.name == "llgtrt.requests"]
    fields: dict[str, Any] = record.__dict__["fields"]
    return fields


async def test_the_line_of_a_request_is_written_at_its_end(
    make_app: AppFactory, native: FakeNativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(make_app(), ROUTE, CHAT) as call:
        handle = await submitted(native)
        handle.put(FakeDelta([FakeChoice(0, "a", "length")], FakeUsage()), last=True)
        await call.done()
    fields = request_fields(caplog)
    assert fields.pop("ms") >= 0
    assert fields == {
        "method": "POST",
        "path": ROUTE,
        "status": 200,
        "client": "test:1",
        "stream": False,
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "cached_tokens": 1,
        "forced_tokens": 0,
        "finish": "length",
    }


async def test_the_line_of_a_stream_has_counts_and_times_too(
    make_app: AppFactory, native: FakeNativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.known = FakeSummary(FakeUsage(), ["stop", "length"], (0.001, 0.0035), 0.004, 0.0145, 0.1145)
        handle.put(b"data: [DONE]\n\n", last=True)
        await call.done()
    fields = request_fields(caplog)
    assert (fields["prompt_tokens"], fields["completion_tokens"], fields["finish"]) == (3, 5, "length,stop")
    times = [fields[name] for name in ("queue_ms", "compile_ms", "prefill_ms", "decode_ms")]
    assert times == [4.0, 2.5, 10.5, 100.0]


async def test_a_stream_that_its_client_left_does_not_look_complete_in_the_log(
    make_app: AppFactory, native: FakeNativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        call.disconnect()
        await call.done()
    fields = request_fields(caplog)
    assert (fields["status"], fields["stream"], fields["outcome"]) == (200, True, "client left")


async def test_an_error_within_a_stream_is_in_the_log(
    make_app: AppFactory, native: FakeNativeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(make_app(), ROUTE, STREAM) as call:
        handle = await submitted(native)
        handle.put(b"data: 1\n\n")
        await call.until(2)
        handle.put(FakeDelta(error=new_error(EngineFailedError, "The engine failed.")), last=True)
        await call.done()
    assert request_fields(caplog)["error"] == "engine_failed"


@pytest.mark.parametrize("path", ["/health", "/v1/health/live", "/metrics"])
async def test_probes_are_not_logged(
    make_app: AppFactory, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO)
    async with AsgiCall(make_app(), path, method="GET") as call:
        await call.done()
    assert not [record for record in caplog.records if record.name == "llgtrt.requests"]
