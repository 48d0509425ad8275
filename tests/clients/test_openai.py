"""``openai`` for Python: chat, completions, the parse and stream helpers, tools, errors."""

from __future__ import annotations

import json

import openai
import pytest
from conftest import KEY
from judge import Judge
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from shapes import Node, Order, Person, Weather

MESSAGES = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Tell me something."}]
TOOL = openai.pydantic_function_tool(Weather, name="weather", description="The weather of a city.")


@pytest.fixture
def client(sim: Judge):
    with OpenAI(base_url=f"{sim.url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_chat_and_its_stream_say_the_same(client: OpenAI) -> None:
    options = {"model": "sim", "messages": MESSAGES, "seed": 1, "max_tokens": 30}
    whole = client.chat.completions.create(**options)
    parts = list(
        client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    assert parts[-1].usage == whole.usage
    text = "".join(choice.delta.content or "" for part in parts for choice in part.choices)
    assert text == whole.choices[0].message.content
    assert len(text) > 5


def test_several_answers_with_log_probabilities(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="sim", messages=MESSAGES, n=3, logprobs=True, top_logprobs=2, max_tokens=5, temperature=1.5
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert "".join(token.token for token in choice.logprobs.content) == choice.message.content
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


@pytest.mark.parametrize("shape", [Person, Order, Node])
def test_parse(client: OpenAI, shape: type[BaseModel]) -> None:
    for seed in range(3):
        answer = client.chat.completions.parse(
            model="sim", messages=MESSAGES, response_format=shape, seed=seed
        )
        assert isinstance(answer.choices[0].message.parsed, shape)


def test_the_stream_helper(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="sim", messages=MESSAGES, response_format=Person, seed=1
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("content.delta") > 0
    assert kinds.count("content.done") == 1
    assert isinstance(final.choices[0].message.parsed, Person)


def test_a_tool_of_pydantic(client: OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.parse(
        model="sim", messages=MESSAGES, tools=[TOOL], tool_choice=choice, seed=1
    )
    (call,) = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(
        model="sim", messages=MESSAGES, tools=[TOOL], tool_choice="required", seed=1
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [event.parsed_arguments for event in done] == [call.function.parsed_arguments for call in calls]
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_conversation_with_tools_on_the_model(demo: Judge) -> None:
    with OpenAI(base_url=f"{demo.url}/v1", api_key=KEY, max_retries=0) as client:
        messages = [{"role": "user", "content": "What is the weather in Paris for the next 3 days?"}]
        options = {"model": "demo", "temperature": 0, "max_tokens": 100, "tools": [TOOL]}
        answer = client.chat.completions.create(messages=messages, **options, tool_choice="required")
        message = answer.choices[0].message
        messages.append(message)
        for call in message.tool_calls:
            Weather.model_validate_json(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"sky": "sunny"}'})
        answer = client.chat.completions.create(messages=messages, **options, tool_choice="none")
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].message.content


def test_a_schema_on_the_model(demo: Judge) -> None:
    with OpenAI(base_url=f"{demo.url}/v1", api_key=KEY, max_retries=0) as client:
        answer = client.chat.completions.parse(
            model="demo",
            messages=[{"role": "user", "content": "Anna is 30, born 1995-04-02, has a cat. Describe her."}],
            response_format=Person,
            temperature=0,
            max_tokens=400,
        )
        assert answer.choices[0].message.parsed.age <= 130


def test_completions(client: OpenAI) -> None:
    options = {"model": "sim", "prompt": ["Once", "Twice"], "seed": 1, "max_tokens": 10}
    whole = client.completions.create(**options, logprobs=1)
    assert len(whole.choices) == 2
    parts = list(client.completions.create(**options, stream=True))
    for index in range(2):
        text = "".join(one.text for part in parts for one in part.choices if one.index == index)
        assert text == whole.choices[index].text


def test_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("sim").owned_by == "llgtrt"


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"model": "other"}, openai.NotFoundError, "model"),
        ({"max_tokens": -5}, openai.BadRequestError, "max_tokens"),
        ({"tool_choice": "sometimes", "tools": [TOOL]}, openai.BadRequestError, "tool_choice"),
    ],
)
def test_errors(client: OpenAI, fields: dict, kind: type[openai.APIStatusError], param: str) -> None:
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": "sim", "messages": MESSAGES, **fields})
    assert caught.value.param == param
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


async def ask_both(client: AsyncOpenAI) -> list[str]:
    import asyncio

    answers = await asyncio.gather(
        *(
            client.chat.completions.create(model="sim", messages=MESSAGES, seed=seed, max_tokens=5)
            for seed in range(8)
        )
    )
    return [answer.choices[0].message.content or "" for answer in answers]


def test_the_asynchronous_client(sim: Judge) -> None:
    import asyncio

    async def run() -> list[str]:
        async with AsyncOpenAI(base_url=f"{sim.url}/v1", api_key=KEY, max_retries=0) as client:
            return await ask_both(client)

    assert len(set(asyncio.run(run()))) > 1


def test_raw_headers_and_extra_fields(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="sim", messages=MESSAGES, extra_body={"guided_choice": ["yes", "no"]}
    )
    assert raw.headers["x-request-id"]
    assert raw.parse().choices[0].message.content in ("yes", "no")
    assert json.loads(raw.text)["model"] == "sim"
