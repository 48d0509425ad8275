"""Tools with the real model, whose template knows none: calls are valid whatever it would like to say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 30},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Current weather.", "parameters": PARAMETERS},
    },
    {"type": "function", "function": {"name": "get_time", "description": "The time now."}},
]
QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Paris? Use celsius."}]


@pytest.mark.parametrize("temperature", [0, 1])
def test_required_then_the_answer(client: OpenAI, temperature: float) -> None:
    """A whole round: the call, its result, and what the model says of it."""
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    asked: Any = client.chat.completions.create(
        model="smollm2", messages=QUESTION, tools=TOOLS, tool_choice=choice, temperature=temperature, seed=1
    )
    message = asked.choices[0].message
    assert asked.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    (call,) = message.tool_calls
    Draft202012Validator(PARAMETERS).validate(json.loads(call.function.arguments))
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21}'}
    messages: list[Any] = [*QUESTION, message.to_dict(), result]
    told = client.chat.completions.create(
        model="smollm2",
        messages=messages,
        tools=TOOLS,
        tool_choice="none",
        max_tokens=24,
    )
    assert told.choices[0].message.content
    assert not told.choices[0].message.tool_calls


def test_a_stream_is_put_together_by_the_client(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="smollm2",
        messages=QUESTION,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0.7,
        seed=3,
    ) as stream:
        names = {event.type for event in stream}
        choice: Any = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert "tool_calls.function.arguments.delta" in names
    (call,) = choice.message.tool_calls
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        Draft202012Validator(PARAMETERS).validate(arguments)
    else:
        assert arguments == {}
    assert choice.message.content is None


def test_auto_leaves_no_markup_in_the_text(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=QUESTION, tools=TOOLS, max_tokens=32, temperature=0.7, seed=5
    )
    message = answer.choices[0].message
    assert message.content or message.tool_calls
    assert "<tool_call" not in (message.content or "")
