"""Constrained answers at their limit of tokens, with the real model: complete and valid, at any limit."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

from support import limits
from support.server import ServerProcess

QUESTION: list[Any] = [{"role": "user", "content": "Describe an imaginary town in great detail, as JSON."}]

TOWN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "founded": {"type": "integer", "minimum": 1000, "maximum": 2020},
        "sights": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "mayor": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string", "format": "email"}},
            "required": ["name", "email"],
            "additionalProperties": False,
        },
        "twin": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "required": ["name", "founded", "sights", "mayor", "twin"],
    "additionalProperties": False,
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "town": TOWN,
    "text": {"type": "string"},
    "list": {"type": "array", "items": {"type": "object", "properties": {"note": {"type": "string"}}}},
    "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}},
}


def response_format(schema: dict[str, Any]) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_are_complete_at_every_limit(client: OpenAI, name: str) -> None:
    schema = SCHEMAS[name]
    reasons = []
    for limit in (60, 64, 71, 90):
        completion = client.chat.completions.create(
            model="smollm2",
            messages=QUESTION,
            response_format=response_format(schema),
            max_tokens=limit,
            n=2,
            temperature=1.2,
            seed=limit,
        )
        for choice in completion.choices:
            jsonschema.validate(json.loads(choice.message.content or ""), schema)
            reasons.append(choice.finish_reason)
        assert completion.usage is not None
        assert completion.usage.completion_tokens <= 2 * limit
    assert set(reasons) <= {"stop", "length"}
    if name == "town":
        assert "length" in reasons


@pytest.mark.timeout(7200)
def test_every_answer_is_whole_from_the_shortest_up(server: ServerProcess) -> None:
    tally = limits.run(server, every=1 if limits.FULL else 61)
    print(f"demo model, {tally}")
    assert tally.pairs > (3000 if limits.FULL else 50)
    tally.check()


def test_a_stream_shows_nothing_that_is_taken_back(client: OpenAI) -> None:
    chunks = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        response_format=response_format(TOWN),
        max_tokens=66,
        temperature=1.2,
        seed=5,
        stream=True,
    )
    text, reason = "", None
    for chunk in chunks:
        text += chunk.choices[0].delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    jsonschema.validate(json.loads(text), TOWN)
    assert reason in ("stop", "length")


def test_a_limit_below_the_shortest_answer_is_refused(client: OpenAI) -> None:
    with pytest.raises(
        openai.BadRequestError, match=r"needs at least [0-9]+ tokens; 5 are allowed"
    ) as refused:
        client.chat.completions.create(
            model="smollm2", messages=QUESTION, response_format=response_format(TOWN), max_tokens=5
        )
    assert refused.value.param == "max_tokens"


def test_cutting_is_the_other_way(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        response_format=response_format(TOWN),
        max_tokens=5,
        extra_body={"at_limit": "cut"},
    )
    choice = completion.choices[0]
    assert choice.finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(choice.message.content or "")
