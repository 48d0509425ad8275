"""Answers under a JSON schema validate, for many shapes of schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI
from openai.types.chat import ChatCompletion

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("schemas.jsonl").read_text(encoding="utf-8").splitlines()
]
# Only open-ended schemas may run into max_tokens.
OPEN_ENDED = {
    "map_of_integers",
    "open_object",
    "pattern_properties",
    "recursive_expression",
    "recursive_list",
    "recursive_tree",
}


def ask(client: OpenAI, case: dict[str, Any]) -> ChatCompletion:
    return client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": case["prompt"]}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": case["name"], "schema": case["schema"], "strict": True},
        },
        max_tokens=300,
        temperature=0.8,
        seed=11,
    )


@pytest.fixture(scope="module")
def answers(server: Any) -> Iterator[dict[str, Future[ChatCompletion]]]:
    """All answers, asked for eight at a time, so that batches mix different grammars."""
    with (
        OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=110) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        yield {case["name"]: pool.submit(ask, client, case) for case in CASES}


def test_there_are_40_distinct_schemas() -> None:
    assert len(CASES) == 40
    assert len({json.dumps(case["schema"], sort_keys=True) for case in CASES}) == 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answer_satisfies_the_schema(
    case: dict[str, Any], answers: dict[str, Future[ChatCompletion]]
) -> None:
    completion = answers[case["name"]].result()
    choice = completion.choices[0]
    assert choice.message.content
    if case["name"] not in OPEN_ENDED:
        assert choice.finish_reason == "stop", choice.message.content
    if choice.finish_reason == "stop":
        answer = json.loads(choice.message.content)
        Draft202012Validator(case["schema"], format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
            answer
        )
    else:
        assert choice.finish_reason == "length"
        assert completion.usage is not None
        assert completion.usage.completion_tokens <= 300


def test_properties_keep_the_order_of_the_schema(client: OpenAI) -> None:
    names = ["zebra", "apple", "mango", "banana"]
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in names},
        "required": sorted(names),
        "additionalProperties": False,
    }
    answer = ask(client, {"name": "order", "prompt": "Which are fruits?", "schema": schema})
    assert list(json.loads(answer.choices[0].message.content or "")) == names


UNIQUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colours": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z]{3,8}$"},
            "uniqueItems": True,
            "minItems": 5,
            "maxItems": 12,
        },
        "best": {"type": "string", "maxLength": 20},
    },
    "required": ["colours", "best"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_items_differ_though_no_grammar_says_so(client: OpenAI, temperature: float) -> None:
    def ask(seed: int) -> str:
        stream = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": f"List colours, number {seed}, and some twice."}],
            extra_body={
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "colours", "schema": UNIQUE, "residual": "verify"},
                }
            },
            max_tokens=300,
            temperature=temperature,
            seed=seed,
            stream=True,
        )
        chunks = [chunk.choices[0] for chunk in stream if chunk.choices]
        assert chunks[-1].finish_reason == "stop"
        return "".join(choice.delta.content or "" for choice in chunks)

    with ThreadPoolExecutor(4) as pool:
        for text in pool.map(ask, range(4)):
            Draft202012Validator(UNIQUE).validate(json.loads(text))
