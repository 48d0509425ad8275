"""Long answers do not hold the event loop while they are written."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from llgtrt import patient_json
from llgtrt.serving import spliced as spliced_module
from llgtrt.serving.spliced import MANY_TOKENS, spliced
from support.asgi import AsgiCall
from support.fake_engine import AppFactory, FakeChoice, FakeDelta, FakeNativeEngine, FakeUsage, settle

LOGPROBS = json.dumps({"content": [{"token": "a", "logprob": -0.5}] * 3})


async def test_log_probabilities_are_written_elsewhere_in_parts(
    make_app: AppFactory, native: FakeNativeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def watched(*arguments: Any) -> list[bytes]:
        threads.append(threading.current_thread())
        return spliced(*arguments)

    monkeypatch.setattr("llgtrt.serving.generation.spliced", watched)
    monkeypatch.setattr(spliced_module, "PIECE_BYTES", 20)
    monkeypatch.setattr(patient_json, "GROUP_BYTES", 20)
    body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True}
    async with AsgiCall(make_app(), "/v1/chat/completions", body) as call:
        await settle()
        choices = [FakeChoice(index, "t", logprobs=LOGPROBS, token_count=MANY_TOKENS + 1) for index in (0, 1)]
        native.handles[-1].put(FakeDelta(choices, FakeUsage(3, 2, 1, 0)), last=True)
        await call.done()
    assert [choice["logprobs"] for choice in json.loads(call.body)["choices"]] == [json.loads(LOGPROBS)] * 2
    assert int(call.headers["content-length"]) == len(call.body)
    assert threads[0] is not threading.main_thread()
