"""Thinking before the answer: of models with tags of their own, and as a scratch part for any other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from support.api import CHAT, chat, chunks_of, error_of, ok
from support.server import ServerProcess
from support.sim import sim_arguments
from support.thinking import CALL, FORMAT, SCHEMA, TEMPLATE, TOOL

SCRIPT = 'First </thin, then {"n": 0}.\n</think>\n\n{"n":4}'


def thinking_server(folder: Any, script: str) -> ServerProcess:
    config = {"sim": {"text": "script", "script": script}, "tokenizer": {"chat_template": TEMPLATE}}
    return ServerProcess(*sim_arguments(folder, config))


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        thinking_server(tmp_path_factory.mktemp("thinker"), SCRIPT) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        yield client


def both(http: httpx.Client, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The choice and the usage of an answer; checks that a stream says the same."""
    whole = ok(http.post(CHAT, json=chat(**fields)))
    options = {"include_usage": True}
    response = http.post(CHAT, json=chat(**fields, stream=True, stream_options=options))
    *chunks, last = chunks_of(response.text)
    choice: dict[str, Any] = whole["choices"][0]
    for member in ("content", "reasoning_content", "reasoning"):
        joined = "".join(one["choices"][0]["delta"].get(member) or "" for one in chunks)
        assert joined == (choice["message"].get(member) or "")
    assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert last["usage"] == whole["usage"]
    return choice, whole["usage"]


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": FORMAT},
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_regex": r'\{"n":[0-9]\}'},
        {"grammar": 'root ::= "{\\"n\\":" [0-9] "}"'},
    ],
)
def test_p32_a_constraint_neither_ends_the_thinking_nor_gets_lost_behind_it(
    thinker: httpx.Client, fields: dict[str, Any]
) -> None:
    # The script breaks the constraint unless it is enforced where the thinking ends.
    choice, _usage = both(thinker, **fields)
    assert choice["message"]["reasoning"] == 'First </thin, then {"n": 0}.'
    Draft202012Validator(SCHEMA).validate(json.loads(choice["message"]["content"]))


@pytest.mark.parametrize("fields", [{}, {"response_format": FORMAT}])
def test_thinking_can_be_left_out_of_what_is_sent(thinker: httpx.Client, fields: dict[str, Any]) -> None:
    choice, usage = both(thinker, **fields, include_reasoning=False)
    assert not {"reasoning", "reasoning_content"} & choice["message"].keys()
    assert choice["message"]["content"] == '{"n":4}'
    assert usage == both(thinker, **fields)[1]


def test_the_tokens_of_an_answer_count_behind_the_thinking(thinker: httpx.Client) -> None:
    choice, _usage = both(thinker, allowed_token_ids=[ord("{"), ord("}")], max_tokens=40)
    assert choice["message"]["reasoning_content"] == 'First </thin, then {"n": 0}.'
    assert set(choice["message"]["content"]) <= {"{", "}"}
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("fields", [{}, {"response_format": FORMAT}])
def test_p16_thinking_is_apart_from_the_answer(thinker: httpx.Client, fields: dict[str, Any]) -> None:
    choice, usage = both(thinker, **fields)
    message = choice["message"]
    assert message["reasoning_content"] == message["reasoning"] == 'First </thin, then {"n": 0}.'
    assert message["content"] == '{"n":4}'
    details = usage["completion_tokens_details"]
    assert 20 < details["reasoning_tokens"] < usage["completion_tokens"]


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
def test_thinking_is_switched_off_by_the_template(thinker: httpx.Client, fields: dict[str, Any]) -> None:
    choice, usage = both(thinker, response_format=FORMAT, max_tokens=60, **fields)
    assert "reasoning_content" not in choice["message"]
    assert "completion_tokens_details" not in usage
    Draft202012Validator(SCHEMA).validate(json.loads(choice["message"]["content"]))


def test_the_effort_reaches_the_template(thinker: httpx.Client) -> None:
    body = ok(thinker.post(CHAT, json=chat(reasoning_effort="high", return_expanded_prompt=True)))
    assert body["expanded_prompt"].endswith("<think>\n(high) ")


@pytest.mark.parametrize(
    "fields", [{"thinking": {"type": "enabled", "budget_tokens": 3}}, {"thinking_token_budget": 3}]
)
def test_a_budget_ends_the_thinking(thinker: httpx.Client, fields: dict[str, Any]) -> None:
    choice, _ = both(thinker, response_format=FORMAT, **fields)
    assert len(choice["message"]["reasoning"]) <= 12
    assert choice["message"]["reasoning"].startswith("First")
    Draft202012Validator(SCHEMA).validate(json.loads(choice["message"]["content"]))
    assert choice["finish_reason"] == "stop"


def test_a_cut_thinking_is_no_content(thinker: httpx.Client) -> None:
    choice, _ = both(thinker, max_tokens=8)
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "")
    assert choice["message"]["reasoning"] == "First"


def test_tools_are_called_behind_the_thinking(tmp_path: Any) -> None:
    with (
        thinking_server(tmp_path, CALL) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as client,
    ):
        for choice in ("auto", "required"):
            answer, _ = both(client, tools=[TOOL], tool_choice=choice)
            assert answer["finish_reason"] == "tool_calls"
            assert answer["message"]["content"] is None
            assert answer["message"]["reasoning"] == "Let me add."
            (call,) = answer["message"]["tool_calls"]
            assert call["function"] == {"name": "add", "arguments": '{"n":4}'}


def test_any_model_has_a_scratch_part(http: httpx.Client) -> None:
    for fields in (
        {"response_format": FORMAT},
        {"guided_choice": ["yes", "no"]},
        {"guided_regex": "a/b[0-9]"},
    ):
        choice, usage = both(http, thinking={"budget_tokens": 10}, **fields)
        assert choice["finish_reason"] == "stop"
        assert 0 < len(choice["message"]["reasoning"]) <= 40
        assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
        content = choice["message"]["content"]
        if "response_format" in fields:
            Draft202012Validator(SCHEMA).validate(json.loads(content))
        else:
            assert content in ("yes", "no") or content.startswith("a/b")
    body = ok(
        http.post(
            CHAT,
            json=chat(thinking={"budget_tokens": 5}, response_format=FORMAT, return_expanded_prompt=True),
        )
    )
    assert body["expanded_prompt"].endswith("<think>\n")


def test_a_budget_without_anything_to_think_for(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json=chat(thinking={"budget_tokens": 10})))
    assert error["param"] == "thinking.budget_tokens"
