"""The field ``constraint``: what held an answer, told by the server to stock clients."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, RECEIPT_OF_ITS_TIME, chat, chunks_of, ok
from support.sim import StartServer

TAG = {"type": "string", "pattern": "^[a-c]{1,2}$"}
TAGS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 10},
        "tags": {"type": "array", "items": TAG, "uniqueItems": True},
    },
    "required": ["name", "tags"],
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def asking(**fields: Any) -> dict[str, Any]:
    """A request whose answer needs grammar and check."""
    wrapper = {"name": "answer", "schema": TAGS}
    return chat(**{"response_format": {"type": "json_schema", "json_schema": wrapper}, "seed": 5, **fields})


def counted(receipts: list[dict[str, Any]]) -> tuple[int, int]:
    """All tokens, and the forced ones."""
    forced = sum(one["forced_tokens"] for one in receipts)
    return forced + sum(one["sampled_tokens"] for one in receipts), forced


def streamed(http: httpx.Client, path: str, body: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], int]:
    """The receipts of a stream's choices by index, and its completion tokens."""
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    chunks = chunks_of(http.post(path, json=body).text)
    found = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert ("constraint" in choice) == (choice["finish_reason"] is not None), choice
            if "constraint" in choice:
                assert choice["index"] not in found
                found[choice["index"]] = choice["constraint"]
    return found, chunks[-1]["usage"]["completion_tokens"]


def test_the_stock_client_carries_it_as_an_extra(openai: OpenAI) -> None:
    answer = openai.chat.completions.create(**asking())
    extra = answer.choices[0].model_extra
    assert extra is not None
    receipt = extra["constraint"]
    assert (receipt["kind"], receipt["enforced_by"]) == ("json_schema", "grammar_and_check")
    assert (receipt["rules"], receipt["residual"]) == (["closed"], ["properties.tags.uniqueItems"])
    assert receipt["complete"] is True
    assert receipt["closed_at_limit"] is False
    assert receipt["mask_ms"] > 0
    assert receipt["compile_ms"] > 0
    assert answer.usage is not None
    assert receipt["sampled_tokens"] + receipt["forced_tokens"] == answer.usage.completion_tokens
    chunks = list(openai.chat.completions.create(**asking(), stream=True))
    last = [chunk.choices[0] for chunk in chunks if chunk.choices][-1]
    assert last.model_extra is not None
    streamed_receipt = last.model_extra["constraint"]
    assert streamed_receipt["grammar_cached"] is True
    times = dict.fromkeys(RECEIPT_OF_ITS_TIME)
    assert {**streamed_receipt, **times} == {**receipt, **times}


@pytest.mark.parametrize("seed", range(6))
def test_the_counts_are_those_of_the_usage(http: httpx.Client, seed: int) -> None:
    body = asking(n=3, seed=seed, temperature=1)
    whole = ok(http.post(CHAT, json=body))
    receipts = [choice["constraint"] for choice in whole["choices"]]
    assert counted(receipts)[0] == whole["usage"]["completion_tokens"]
    found, tokens = streamed(http, CHAT, body)
    assert sorted(found) == [0, 1, 2]
    assert counted(list(found.values()))[0] == tokens == whole["usage"]["completion_tokens"]


def test_completions_have_one_per_choice_too(http: httpx.Client) -> None:
    body = {"prompt": ["a", "b"], "n": 2, "guided_regex": "[ab]{3}", "max_tokens": 20, "seed": 1}
    whole = ok(http.post(COMPLETIONS, json=body))
    assert [choice["constraint"]["kind"] for choice in whole["choices"]] == ["regex"] * 4
    found, tokens = streamed(http, COMPLETIONS, body)
    assert sorted(found) == [0, 1, 2, 3]
    assert counted(list(found.values()))[0] == tokens


@pytest.mark.parametrize("stream", [False, True])
def test_calls_are_a_constraint(http: httpx.Client, stream: bool) -> None:
    body = chat(tools=[TOOL], tool_choice="required", seed=2, max_tokens=300)
    if stream:
        found, tokens = streamed(http, CHAT, body)
        receipt = found[0]
    else:
        whole = ok(http.post(CHAT, json=body))
        receipt, tokens = whole["choices"][0]["constraint"], whole["usage"]["completion_tokens"]
    assert receipt["kind"] == "tools"
    assert receipt["rules"] == ["closed"]
    assert counted([receipt])[0] == tokens


def test_a_message_of_anthropics_form_has_it(http: httpx.Client) -> None:
    tool = {"name": "look", "input_schema": TOOL["function"]["parameters"]}
    body = {
        "model": "sim-model",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [tool],
        "tool_choice": {"type": "any"},
        "max_tokens": 300,
    }
    message = ok(http.post("/v1/messages", json=body))
    assert message["constraint"]["kind"] == "tools"
    events = http.post("/v1/messages", json={**body, "stream": True}).text
    data = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    (ended,) = [one for one in data if one["type"] == "message_delta"]
    assert ended["constraint"]["kind"] == "tools"


def test_free_text_has_none(http: httpx.Client) -> None:
    assert "constraint" not in ok(http.post(CHAT, json=chat()))["choices"][0]
    assert '"constraint"' not in http.post(CHAT, json=chat(stream=True)).text


def test_a_limit_shows(http: httpx.Client) -> None:
    limit = next(
        limit for limit in range(5, 60) if http.post(CHAT, json=asking(max_tokens=limit)).status_code == 200
    )
    closed = ok(http.post(CHAT, json=asking(max_tokens=limit)))["choices"][0]
    assert closed["finish_reason"] == "length"
    assert (closed["constraint"]["complete"], closed["constraint"]["closed_at_limit"]) == (True, True)
    cut = ok(http.post(CHAT, json=asking(max_tokens=limit - 2, at_limit="cut")))["choices"][0]
    assert (cut["constraint"]["complete"], cut["constraint"]["closed_at_limit"]) == (False, False)


@pytest.mark.parametrize("asked", [{"logprobs": True}, {"return_removed_mass": True}])
def test_the_removed_mass_is_measured_where_it_is_asked_for(
    http: httpx.Client, asked: dict[str, Any]
) -> None:
    choice = ok(http.post(CHAT, json=asking(**asked)))["choices"][0]
    mass = choice["constraint"]["removed_mass"]
    assert 0 < mass["mean"] <= mass["max"] <= 1
    assert "removed_mass" not in ok(http.post(CHAT, json=asking()))["choices"][0]["constraint"]
    if "logprobs" in asked:
        entries = choice["logprobs"]["content"]
        assert all(0 <= entry["removed_mass"] <= 1 for entry in entries)
        text = {"prompt": "x", "guided_regex": "[ab]{3}", "logprobs": 0, "max_tokens": 9}
        columns = ok(http.post(COMPLETIONS, json=text))["choices"][0]["logprobs"]
        assert len(columns["removed_mass"]) == len(columns["tokens"])
    free = ok(http.post(CHAT, json=chat(**asked)))["choices"][0]
    assert "constraint" not in free


def test_receipts_can_be_turned_off(start_server: StartServer) -> None:
    server = start_server(server={"receipt": False})
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        assert "constraint" not in ok(http.post(CHAT, json=asking()))["choices"][0]
        assert '"constraint"' not in http.post(CHAT, json=asking(stream=True)).text


def test_responses_have_it_too(openai: OpenAI) -> None:
    fields: Any = {
        "model": openai.models.list().data[0].id,
        "input": "hello",
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": TAGS}},
    }
    response = openai.responses.create(**fields)
    assert response.model_extra is not None
    receipt = response.model_extra["constraint"]
    assert (receipt["kind"], receipt["rules"]) == ("json_schema", ["closed"])
    assert response.usage is not None
    assert counted([receipt])[0] == response.usage.output_tokens
    with openai.responses.stream(**fields) as stream:
        stream.until_done()
        streamed_extra = stream.get_final_response().model_extra
    assert streamed_extra is not None
    assert streamed_extra["constraint"]["kind"] == "json_schema"
