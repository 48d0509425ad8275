"""A round of a tool with the real model in the other APIs: the call, its result, and what the model says."""

from __future__ import annotations

import json
from typing import Any

from anthropic import Anthropic
from jsonschema import Draft202012Validator
from openai import OpenAI

from support.server import ServerProcess

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
QUESTION = "What is the weather in Paris? Use celsius."


def test_messages(server: ServerProcess) -> None:
    fields: dict[str, Any] = {
        "model": "smollm2",
        "max_tokens": 60,
        "tools": [{"name": "get_weather", "description": "Current weather.", "input_schema": SCHEMA}],
    }
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    with Anthropic(base_url=server.base_url, api_key="unused", max_retries=0, timeout=60) as client:
        with client.messages.stream(messages=messages, tool_choice={"type": "any"}, **fields) as stream:
            asked = stream.get_final_message()
        assert asked.stop_reason == "tool_use"
        (call,) = [block for block in asked.content if block.type == "tool_use"][:1]
        Draft202012Validator(SCHEMA).validate(call.input)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        told = client.messages.create(messages=messages, tool_choice={"type": "none"}, **fields)
        assert [block.type for block in told.content] == ["text"]
        assert told.content[0].text


def test_responses(client: OpenAI) -> None:
    tool: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
    with client.responses.stream(
        model="smollm2", input=QUESTION, tools=[tool], tool_choice="required", max_output_tokens=60
    ) as stream:
        asked = stream.get_final_response()
    call: Any = asked.output[0]
    Draft202012Validator(SCHEMA).validate(json.loads(call.arguments))
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}
    told = client.responses.create(
        model="smollm2",
        previous_response_id=asked.id,
        input=[result],
        tools=[tool],
        tool_choice="none",
        max_output_tokens=24,
    )
    assert told.output_text
    given = [item.type for item in client.responses.input_items.list(told.id, order="asc")]
    assert given[:2] == ["message", "function_call"]
    assert given[-1] == "function_call_output"
