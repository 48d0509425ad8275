"""``residual: verify``: what no grammar can hold is satisfied by every answer, or the request fails."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI, UnprocessableEntityError

from support.api import CHAT, chat, chunks_of, error_of, finish_reasons, joined, ok, text_of
from support.server import ServerProcess

ITEM = {"type": "string", "pattern": "^[a-c]{1,2}$"}
TAGS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "tags": {"type": "array", "items": ITEM, "uniqueItems": True, "minItems": 4, "maxItems": 90},
        "end": {"const": True},
    },
    "required": ["name", "tags", "end"],
    "additionalProperties": False,
}
IMPOSSIBLE: dict[str, Any] = {
    **TAGS,
    "properties": {
        **TAGS["properties"],
        "tags": {"type": "array", "items": ITEM, "uniqueItems": True, "minItems": 40, "maxItems": 90},
    },
}


def verified(schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A request whose schema is checked while the answer grows."""
    wrapper = {"name": "answer", "schema": schema, "residual": "verify"}
    response_format = {"type": "json_schema", "json_schema": wrapper}
    return chat(response_format=response_format, **{"max_tokens": 1500, **fields})


def test_answers_satisfy_the_schema_and_streams_are_the_same(
    http: httpx.Client, server: ServerProcess
) -> None:
    validator = Draft202012Validator(TAGS)
    bodies = [verified(TAGS, seed=seed, temperature=1) for seed in range(24)]

    def post(body: dict[str, Any]) -> httpx.Response:
        return httpx.post(server.base_url + CHAT, json=body, timeout=60)

    with ThreadPoolExecutor(8) as pool:
        alone = list(pool.map(post, bodies))
        streamed = list(pool.map(post, [{**body, "stream": True} for body in bodies]))
    for one, stream in zip(alone, streamed, strict=True):
        text = text_of(ok(one))
        assert validator.is_valid(json.loads(text)), text
        chunks = chunks_of(stream.text)
        assert joined(chunks) == text
        assert finish_reasons(chunks) == {0: "stop"}
        usage = ok(one)["usage"]
        assert usage["completion_tokens"] <= len(text.encode()) + 1
    retracted = [line for line in http.get("/metrics").text.splitlines() if "retracted_tokens_total" in line]
    assert float(retracted[-1].split()[-1]) > 0


def test_text_is_released_only_as_far_as_it_is_certain(http: httpx.Client) -> None:
    response = http.post(CHAT, json=verified(TAGS, seed=3, temperature=1, stream=True))
    pieces = [
        choice["delta"].get("content") or ""
        for chunk in chunks_of(response.text)
        for choice in chunk["choices"]
    ]
    text = "".join(pieces)
    start, end = text.index("["), text.index("]")
    position = 0
    for piece in pieces:
        # No piece ends inside of the array, of which nothing is certain before its end.
        position += len(piece)
        assert not start < position <= end, (piece, text)


def test_nobody_has_to_ask_for_it_and_a_request_may_refuse_it(http: httpx.Client) -> None:
    text = text_of(ok(http.post(CHAT, json=chat(guided_json=TAGS, max_tokens=1500, seed=1))))
    assert Draft202012Validator(TAGS).is_valid(json.loads(text))
    schema = {**TAGS, "x-guidance": {"residual": "refuse"}}
    refused = verified(TAGS)
    refused["response_format"]["json_schema"]["residual"] = "refuse"
    for body in (chat(guided_json=schema), refused):
        error = error_of(http.post(CHAT, json=body))
        assert error["code"] == "invalid_grammar"
        assert "uniqueItems" in error["message"]
        assert error["param"].endswith("properties.tags.uniqueItems")


def test_an_unknown_mode_is_an_error(http: httpx.Client) -> None:
    body = verified(TAGS)
    body["response_format"]["json_schema"]["residual"] = "ignore"
    assert error_of(http.post(CHAT, json=body))["param"] == "response_format.json_schema.residual"
    body = chat(guided_json={**TAGS, "x-guidance": {"residual": 1}})
    assert error_of(http.post(CHAT, json=body))["param"] == "guided_json.x-guidance.residual"


def test_without_an_answer_the_request_fails_and_says_so(http: httpx.Client, openai: OpenAI) -> None:
    error = error_of(http.post(CHAT, json=verified(IMPOSSIBLE, seed=1)), 422)
    assert (error["type"], error["code"]) == ("constraint_error", "constraint_not_satisfied")
    events = http.post(CHAT, json=verified(IMPOSSIBLE, seed=1, stream=True)).text.split("\n\n")
    *_, last_data, done = (event.removeprefix("data: ") for event in events if event)
    assert done == "[DONE]"
    last = json.loads(last_data)
    assert last["error"]["type"] == "constraint_error"
    body = verified(IMPOSSIBLE, seed=1)
    with pytest.raises(UnprocessableEntityError):
        openai.chat.completions.create(**body)


def test_logprobs_belong_to_the_tokens_that_stay(http: httpx.Client) -> None:
    body = ok(http.post(CHAT, json=verified(TAGS, seed=5, temperature=1, logprobs=True, top_logprobs=1)))
    entries = body["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == text_of(body)


def test_an_answer_cut_off_shows_nothing_uncertain(http: httpx.Client) -> None:
    whole = text_of(ok(http.post(CHAT, json=verified(TAGS, seed=3, temperature=1))))
    for limit in range(1, 40, 3):
        cut = verified(TAGS, seed=3, temperature=1, max_tokens=limit, at_limit="cut")
        body = ok(http.post(CHAT, json=cut))
        text = text_of(body)
        if body["choices"][0]["finish_reason"] == "length":
            assert text.endswith('"tags":') or "[" not in text or "]" in text, text
            assert body["usage"]["completion_tokens"] == limit
        assert whole.startswith(text)


def test_validate_checks_instances_for_it(http: httpx.Client) -> None:
    good = {"name": "x", "tags": ["a", "b", "c", "ab"], "end": True}
    bad = {**good, "tags": ["a", "b", "c", "a"]}
    body = {"json_schema": TAGS, "residual": "verify", "instances": [good, bad, json.dumps(bad)]}
    report = ok(http.post("/v1/grammar/validate", json=body))
    assert [instance["accepted"] for instance in report["instances"]] == [True, False, False]
    assert [left["keyword"] for left in report["residual"]] == ["uniqueItems"]
