"""Triton's routes on an engine whose output the test writes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from llgtrt.engine import ContextLengthError, OverloadedError, new_error
from llgtrt.serving import (
    CompletionService,
    RequestError,
    ServedModel,
    TokenLimits,
    TritonRequest,
    TritonService,
)
from support.asgi import AsgiCall
from support.fake_engine import (
    AppFactory,
    FakeChoice,
    FakeDelta,
    FakeNativeEngine,
    FakeUsage,
    fake_engine,
    settle,
)

PATH = "/v2/models/fake"


def client(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def call(app: FastAPI, route: str, **fields: Any) -> AsgiCall:
    body = json.dumps({"text_input": "Hi", **fields}).encode()
    return AsgiCall(app, f"{PATH}/{route}", chunks=[body])


def objects(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.removeprefix(b"data: ")) for event in body.split(b"\n\n") if event]


async def test_a_stream_whose_last_delta_holds_only_counts(
    make_app: AppFactory, native: FakeNativeEngine
) -> None:
    async with call(make_app(), "generate_stream", return_finish_reason=True) as stream:
        await settle()
        (handle,) = native.handles
        handle.put(FakeDelta([FakeChoice(0, "a", None)]))
        await settle()
        handle.put(FakeDelta([FakeChoice(0, "b", "stop")]))
        await settle()
        handle.put(FakeDelta([], FakeUsage()), last=True)
        await stream.done()
    assert stream.status == 200
    assert [(one["text_output"], one["finish_reason"]) for one in objects(stream.body)] == [
        ("a", None),
        ("b", "stop"),
    ]


async def test_log_probabilities_add_up_over_a_stream(make_app: AppFactory, native: FakeNativeEngine) -> None:
    def logprobs(*values: float) -> str:
        return json.dumps({"tokens": ["x"] * len(values), "token_logprobs": list(values)})

    async with call(make_app(), "generate_stream", text_input=["p", "q"], return_log_probs=True) as stream:
        await settle()
        (handle,) = native.handles
        handle.put(FakeDelta([FakeChoice(0, "a", None, logprobs(-1.0, -0.5))]))
        await settle()
        last = [FakeChoice(0, "b", "stop", logprobs(-0.25)), FakeChoice(1, "c", "stop", logprobs(-2.0))]
        handle.put(FakeDelta(last, FakeUsage()), last=True)
        await stream.done()
    found = [
        (one["batch_index"], one["cum_log_probs"], one["output_log_probs"]) for one in objects(stream.body)
    ]
    assert found == [(0, -1.5, [-1.0, -0.5]), (0, -1.75, [-0.25]), (1, -2.0, [-2.0])]


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("error", "status"),
    [(new_error(ContextLengthError, "too long"), 400), (new_error(OverloadedError, "full"), 503)],
)
async def test_an_error_before_the_answer_is_a_status(
    make_app: AppFactory, native: FakeNativeEngine, route: str, error: Exception, status: int
) -> None:
    async with call(make_app(), route) as answer:
        await settle()
        native.handles[0].put(FakeDelta(error=error), last=True)
        await answer.done()
    assert answer.status == status
    assert set(json.loads(answer.body)) == {"error"}


@pytest.mark.parametrize("route", ["generate", "generate_stream"])
async def test_a_client_that_leaves_frees_its_place(
    make_app: AppFactory, native: FakeNativeEngine, route: str
) -> None:
    async with call(make_app(), route) as answer:
        await settle()
        answer.disconnect()
        await answer.done()
    assert native.handles[0].cancelled


async def test_what_the_core_is_asked_for(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with call(make_app(), "generate", text_input=["a", "b"], num_return_sequences=3) as answer:
        await settle()
        assert native.reserved == [6]
        choices = [FakeChoice(index, f"t{index}") for index in (3, 1, 0, 2, 5, 4)]
        native.handles[0].put(FakeDelta(choices, FakeUsage()), last=True)
        await answer.done()
    body = json.loads(answer.body)
    assert body["text_output"] == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert body["batch_index"] == [0, 0, 0, 1, 1, 1]
    assert body["sequence_index"] == [0, 1, 2, 0, 1, 2]


async def test_readiness_follows_the_engine(make_app: AppFactory, native: FakeNativeEngine) -> None:
    async with client(make_app()) as http:
        native.state = ("draining", "bye")
        for path in ("/v2/health/ready", f"{PATH}/ready"):
            response = await http.get(path)
            assert (response.status_code, response.json()) == (503, {"error": "draining: bye"})
        assert (await http.get("/v2/health/live")).status_code == 200
        index = "/v2/repository/index"
        (entry,) = (await http.post(index)).json()
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "bye")
        assert (await http.post(index, json={"ready": True})).json() == []
        native.state = ("ready", "")
        assert (await http.get(f"{PATH}/versions/1/ready")).content == b""
        assert len((await http.post(index, json={"ready": True})).json()) == 1


async def test_statistics_before_the_first_request(make_app: AppFactory) -> None:
    async with client(make_app()) as http:
        (stats,) = (await http.get(f"{PATH}/stats")).json()["model_stats"]
    assert (stats["inference_count"], stats["execution_count"], stats["last_inference"]) == (0, 0, 0)
    assert stats["inference_stats"]["success"] == {"count": 0, "ns": 0}


async def test_an_adapter_is_named_by_its_number() -> None:
    native = FakeNativeEngine(adapters=["7", "blue"])
    engine = fake_engine(native)
    model = ServedModel("fake", 1000, engine.model_info.adapters)
    completions = CompletionService(engine, model, limits=TokenLimits(max_n=8))
    service = TritonService(engine, model, completions, 8)
    request = TritonRequest.model_validate({"text_input": "Hi", "lora_task_id": [[7]]})
    started = await service.start("fake", None, request, "generate", None)
    assert engine.adapters_in_use() == ["7"]
    plain = TritonRequest.model_validate({"text_input": "Hi"})
    by_path = await service.start("blue", "1", plain, "generate", None)
    assert engine.adapters_in_use() == ["7", "blue"]
    started.stream.cancel()
    by_path.stream.cancel()
    with pytest.raises(RequestError, match="lora_task_id"):
        await service.start("blue", None, request, "generate", None)
    other = TritonRequest.model_validate({"text_input": "Hi", "lora_task_id": 8})
    with pytest.raises(RequestError, match="no adapter is named 8"):
        await service.start("fake", None, other, "generate", None)
    await engine.shutdown()
    native.close()
