"""The stock ``openai`` client against a real process."""

from __future__ import annotations

import json
from typing import Any

import openai as openai_package
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

from support.api import chat
from support.server import ServerProcess
from support.sim import FAIL_PROMPT, NAN_PROMPT, StartServer

MODEL = "sim-model"
ASK: Any = [{"role": "user", "content": "Tell me something."}]


class Person(BaseModel):
    """What the client asks for."""

    name: str = Field(max_length=9)
    age: int = Field(ge=0, le=150)


def test_chat(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(**chat())
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(openai: OpenAI) -> None:
    whole = openai.chat.completions.create(**chat())
    chunks = list(
        openai.chat.completions.create(**chat(), stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage == whole.usage


def test_the_clients_own_stream_helper(openai: OpenAI) -> None:
    with openai.chat.completions.stream(model=MODEL, messages=ASK, seed=3, response_format=Person) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_parse_into_a_pydantic_model(openai: OpenAI) -> None:
    answer = openai.chat.completions.parse(model=MODEL, messages=ASK, seed=3, response_format=Person)
    assert isinstance(answer.choices[0].message.parsed, Person)
    assert answer.choices[0].message.refusal is None


def test_completions(openai: OpenAI) -> None:
    whole = openai.completions.create(model=MODEL, prompt="Go", seed=1, max_tokens=30, logprobs=2)
    assert whole.object == "text_completion"
    chunks = list(openai.completions.create(model=MODEL, prompt="Go", seed=1, max_tokens=30, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_logprobs(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(**chat(), logprobs=True, top_logprobs=5, max_tokens=6)
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert len(content) == 6
    assert all(len(token.top_logprobs) == 5 for token in content)


def test_models(openai: OpenAI) -> None:
    assert [model.id for model in openai.models.list()] == [MODEL]
    assert openai.models.retrieve(MODEL).owned_by == "llgtrt"
    with pytest.raises(openai_package.NotFoundError) as caught:
        openai.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_errors_arrive_as_the_clients_own(openai: OpenAI) -> None:
    with pytest.raises(openai_package.BadRequestError) as bad:
        openai.chat.completions.create(**chat(), temperature=300)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai_package.NotFoundError):
        openai.chat.completions.create(model="other", messages=ASK)
    with pytest.raises(openai_package.BadRequestError) as tools:
        openai.chat.completions.create(
            **chat(), tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}]
        )
    assert tools.value.param == "tools[0].function.parameters.type"


def test_an_error_in_a_stream_is_raised_by_the_client(openai: OpenAI) -> None:
    for prompt in (NAN_PROMPT, FAIL_PROMPT):
        stream = openai.chat.completions.create(**chat(prompt), stream=True)
        assert next(stream).choices
        with pytest.raises(openai_package.APIError):
            list(stream)


def test_the_key(start_server: StartServer) -> None:
    server = start_server("--api-key", "Correct")
    for key, works in (("Correct", True), ("correct", False), ("x", False)):
        with OpenAI(base_url=f"{server.base_url}/v1", api_key=key, max_retries=0) as client:
            if works:
                assert client.chat.completions.create(**chat()).choices
            else:
                with pytest.raises(openai_package.AuthenticationError) as caught:
                    client.chat.completions.create(**chat())
                assert caught.value.code == "invalid_api_key"
    assert server.get("/v1/health/ready").status_code == 200
    assert "Correct" not in server.output


def test_prompts_are_not_logged(start_server: StartServer) -> None:
    server = start_server("--debug", server={"log_requests": True})
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="SECRETKEY", max_retries=0) as client:
        client.chat.completions.create(**chat("PRIVATEPROMPT"))
        with pytest.raises(openai_package.BadRequestError):
            client.chat.completions.create(**chat("PRIVATEPROMPT"), temperature=300)
    assert "/v1/chat/completions" in server.output
    assert "PRIVATEPROMPT" not in server.output
    assert "SECRETKEY" not in server.output


def test_40_answers_at_once(openai: OpenAI, server: ServerProcess) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def ask(seed: int) -> str:
        body = {**chat(), "seed": seed}
        return (
            openai.chat.completions.create(**body, response_format={"type": "json_object"})
            .choices[0]
            .message.content
            or ""
        )

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(ask, range(40)))
        again = list(pool.map(ask, range(40)))
    assert texts == again
    assert all(isinstance(json.loads(text), dict) for text in texts)
    assert server.is_idle()
