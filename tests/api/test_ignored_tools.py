"""Tools that are services of other servers: agents send them unasked, and must work nevertheless."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.api import CHAT, chat, chunks_of, error_of, ok
from support.openapi import validate_answer

RESPONSES = "/v1/responses"
HEADER = "x-llgtrt-ignored-tools"
PARAMETERS = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"enum": ["ls", "cat"]}, "minItems": 1, "maxItems": 2}
    },
    "required": ["command"],
    "additionalProperties": False,
}
SHELL = {"type": "function", "name": "shell", "description": "Runs a command.", "parameters": PARAMETERS}
OTHERS: list[dict[str, Any]] = [
    {"type": "web_search", "external_web_access": False},
    {"type": "local_shell"},
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Edits files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
    },
]
NAMED = "custom, local_shell, web_search"


def in_chat(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of the Responses API as chat has it."""
    if tool["type"] != "function":
        return tool
    return {"type": "function", "function": {name: tool[name] for name in ("name", "parameters")}}


def codex(**fields: Any) -> dict[str, Any]:
    """A request as Codex sends it, but for the length of its texts."""
    return {
        "model": "sim-model",
        "instructions": "You are a coding agent.",
        "input": [
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "Be brief."}],
            },
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "List the files."}],
            },
        ],
        "tools": [OTHERS[0], SHELL, *OTHERS[1:]],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0196f1a2",
        "text": {"verbosity": "medium"},
        **fields,
    }


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_p30_codex_works_unchanged(http: httpx.Client, choice: str) -> None:
    response = http.post(RESPONSES, json=codex(tool_choice=choice))
    assert response.status_code == 200, response.text
    assert response.headers[HEADER] == NAMED
    assert validate_answer(RESPONSES, 200, response.headers["content-type"], response.content) > 4
    last = json.loads(response.text.strip().split("\n\n")[-1].split("data: ", 1)[1])
    assert last["type"] == "response.completed"
    assert [tool["name"] for tool in last["response"]["tools"]] == ["shell"]
    calls = [item for item in last["response"]["output"] if item["type"] == "function_call"]
    assert choice == "auto" or calls
    for call in calls:
        assert call["name"] == "shell"
        assert set(json.loads(call["arguments"])["command"]) <= {"ls", "cat"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_calls_the_functions_only(http: httpx.Client, stream: bool) -> None:
    tools = [in_chat(tool) for tool in (OTHERS[0], SHELL, *OTHERS[1:])]
    response = http.post(CHAT, json=chat(tools=tools, tool_choice="required", stream=stream))
    assert response.headers[HEADER] == NAMED
    if stream:
        reasons = [
            choice["finish_reason"] for chunk in chunks_of(response.text) for choice in chunk["choices"]
        ]
        assert reasons[-1] == "tool_calls"
    else:
        assert {call["function"]["name"] for call in ok(response)["choices"][0]["message"]["tool_calls"]} == {
            "shell"
        }


def test_without_a_function_the_answer_is_free(http: httpx.Client) -> None:
    plain = http.post(CHAT, json=chat())
    response = http.post(CHAT, json=chat(tools=OTHERS, tool_choice="auto"))
    assert response.headers[HEADER] == NAMED
    assert HEADER not in plain.headers
    assert ok(response)["choices"] == ok(plain)["choices"]


@pytest.mark.parametrize(
    "choice", ["required", {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
)
def test_what_is_ignored_cannot_be_chosen(http: httpx.Client, choice: Any) -> None:
    with_functions = [] if choice == "required" else [SHELL]
    for tools in (OTHERS, [*OTHERS, *with_functions]):
        error = error_of(
            http.post(CHAT, json=chat(tools=[in_chat(tool) for tool in tools], tool_choice=choice))
        )
        assert error["param"] == "tool_choice"
        error = error_of(http.post(RESPONSES, json=codex(tools=tools, tool_choice=choice)))
        assert error["param"] == "tool_choice"


def test_errors_name_the_clients_place(http: httpx.Client) -> None:
    wrong = {**SHELL, "parameters": {"type": "array"}}
    error = error_of(http.post(RESPONSES, json=codex(tools=[OTHERS[0], SHELL, OTHERS[1], wrong])))
    assert error["param"] == "tools[3].name"
    other = {**wrong, "name": "other"}
    error = error_of(http.post(RESPONSES, json=codex(tools=[OTHERS[0], SHELL, OTHERS[1], other])))
    assert error["param"] == "tools[3].parameters.type"
    for tool in ({"type": "function"}, {"type": "function", "function": None}):
        error = error_of(http.post(CHAT, json=chat(tools=[OTHERS[0], tool])))
        assert error["param"] == "tools[1].function"
    error = error_of(http.post(CHAT, json=chat(tools=[OTHERS[0], {"type": 3}])))
    assert error["param"] == "tools[1].type"


def test_a_type_is_no_way_into_the_headers(http: httpx.Client) -> None:
    tools = [{"type": "a\r\nX-Evil: b, \u00fc"}, *({"type": f"t{number}"} for number in range(100))]
    response = http.post(CHAT, json=chat(tools=tools, max_tokens=1))
    assert response.status_code == 200, response.text
    assert "x-evil" not in response.headers
    named = response.headers[HEADER].split(", ")
    assert named[0] == "a??X-Evil:?b???"
    assert len(named) == 16
