"""Answers with many log-probabilities are written as those with few, without reading what the core wrote."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast

import pytest

from llgtrt import patient_json
from llgtrt.engine import Delta
from llgtrt.serving import spliced as spliced_module
from llgtrt.serving.chat import chat_choice
from llgtrt.serving.completion import completion_choice
from llgtrt.serving.generation import response_object
from llgtrt.serving.output import ResponseHead
from llgtrt.serving.spliced import MANY_TOKENS, has_many, spliced
from support.fake_engine import FakeChoice, FakeDelta, FakeUsage

LOGPROBS = json.dumps({"content": [{"token": 'é"', "logprob": -0.5}] * 3}, ensure_ascii=False)
PROMPT = json.dumps([None, {"1": {"logprob": -1}}])


def answer(**fields: Any) -> Delta:
    several = [FakeChoice(index, f"t{index}", token_count=MANY_TOKENS + 1, **fields) for index in (1, 0)]
    return cast(Delta, FakeDelta(several, FakeUsage(3, 2, 1, 0)))


@pytest.mark.parametrize("choice", [chat_choice, completion_choice])
@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": LOGPROBS},
        {"logprobs": LOGPROBS, "prompt_logprobs": PROMPT, "prompt_token_ids": [1, 2], "token_ids": [3]},
        {"prompt_logprobs": PROMPT, "prompt_token_ids": [1], "constraint": '{"kind":"regex"}'},
    ],
)
def test_the_object_is_the_same(choice: Any, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = partial(response_object, "an.object", ResponseHead("id", 1, "m", None), "the prompt", choice)
    delta = answer(**fields)
    assert has_many(delta)
    for size in (5, 1000):
        monkeypatch.setattr(spliced_module, "PIECE_BYTES", size)
        monkeypatch.setattr(patient_json, "GROUP_BYTES", size)
        parts = spliced(plain, delta)
        assert json.loads(b"".join(parts)) == plain(delta)
        assert len(parts) > 1 or size == 1000


def test_a_few_are_written_as_ever() -> None:
    assert not has_many(cast(Delta, FakeDelta([FakeChoice(0, "t", logprobs=LOGPROBS)])))
    assert not has_many(answer())
