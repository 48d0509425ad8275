"""``litellm``: as a server with OpenAI's API and as vLLM; answers, streams, tools, errors that it maps."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest
from conftest import KEY
from judge import Judge
from shapes import Person, Weather

MESSAGES = [{"role": "user", "content": "Tell me something."}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": Weather.model_json_schema()},
}
PROVIDERS = ["openai", "hosted_vllm"]


def ask(judge: Judge, provider: str, **options: Any) -> Any:
    options = {"messages": MESSAGES, "seed": 1, "num_retries": 0, **options}
    model = options.pop("model", "sim")
    return litellm.completion(model=f"{provider}/{model}", api_base=f"{judge.url}/v1", api_key=KEY, **options)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_schema(sim: Judge, provider: str) -> None:
    answer = ask(sim, provider, response_format=Person)
    Person.model_validate_json(answer.choices[0].message.content)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream(sim: Judge, provider: str) -> None:
    whole = ask(sim, provider, max_tokens=20)
    parts = list(ask(sim, provider, max_tokens=20, stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content
    assert litellm.stream_chunk_builder(parts).usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("provider", PROVIDERS)
def test_tools(sim: Judge, provider: str) -> None:
    for stream in (False, True):
        answer = ask(sim, provider, tools=[TOOL], tool_choice="required", stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer))
        choice = answer.choices[0]
        assert choice.finish_reason == "tool_calls"
        for call in choice.message.tool_calls:
            assert call.function.name == "weather"
            Weather.model_validate_json(call.function.arguments)


def test_text_completion(sim: Judge) -> None:
    answer = litellm.text_completion(
        model="text-completion-openai/sim",
        prompt="Once",
        api_base=f"{sim.url}/v1",
        api_key=KEY,
        max_tokens=8,
        seed=1,
    )
    assert answer.choices[0].text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_errors_have_their_kind(sim: Judge, provider: str) -> None:
    long = [{"role": "user", "content": "word " * 5_000}]
    with pytest.raises(litellm.ContextWindowExceededError):
        ask(sim, provider, messages=long)
    with pytest.raises(litellm.NotFoundError):
        ask(sim, provider, model="other")
    with pytest.raises(litellm.BadRequestError):
        ask(sim, provider, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": 1}})
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(
            model=f"{provider}/sim", messages=MESSAGES, api_base=f"{sim.url}/v1", api_key="x", num_retries=0
        )


def test_fields_of_vllm(sim: Judge) -> None:
    answer = ask(sim, "hosted_vllm", extra_body={"guided_json": Weather.model_json_schema()})
    assert set(json.loads(answer.choices[0].message.content)) == {"city", "days"}
