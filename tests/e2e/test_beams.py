"""Beam search over the real model."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from support.server import ServerProcess

PROMPT = "The capital of France is"
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "people": {"type": "integer", "minimum": 0, "maximum": 10**8},
        "mood": {"enum": ["calm", "busy", "loud"]},
    },
    "required": ["city", "people", "mood"],
    "additionalProperties": False,
}


def completion(http: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "smollm2", "prompt": PROMPT, "max_tokens": 8, "logprobs": 0, **fields}
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def logprob(choice: dict[str, Any]) -> float:
    return float(sum(choice["logprobs"]["token_logprobs"]))


def test_one_beam_is_greedy_and_more_are_likelier(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.base_url, timeout=120) as http:
        (greedy,) = completion(http, temperature=0, ignore_eos=True)
        (one,) = completion(http, use_beam_search=True, ignore_eos=True)
        four = completion(http, use_beam_search=True, n=4, ignore_eos=True)
    assert one["text"] == greedy["text"]
    assert logprob(one) == pytest.approx(logprob(greedy), abs=0.05)
    assert len({choice["text"] for choice in four}) == 4
    assert logprob(four[0]) >= logprob(greedy) - 0.05
    assert [logprob(choice) for choice in four] == sorted(map(logprob, four), reverse=True)


def test_answers_under_a_schema_are_valid(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.base_url, timeout=120) as http:
        for most in (30, 48):
            choices = completion(
                http,
                prompt="A large town, as JSON:",
                use_beam_search=True,
                n=4,
                max_tokens=most,
                guided_json=SCHEMA,
                return_token_ids=True,
            )
            assert choices
            for choice in choices:
                jsonschema.validate(json.loads(choice["text"]), SCHEMA)
            # The same text in other tokens is another beam.
            assert len({tuple(choice["token_ids"]) for choice in choices}) == len(choices)
