"""Tools through the stock client: every way to choose, streamed and not, and the history of calls."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai as openai_package
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI

from support.api import CHAT, chat, chunks_of, error_of, ok
from support.openapi import validate
from support.server import ServerProcess
from support.sim import StartServer

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
TIME: Any = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}
TOOLS: list[Any] = [WEATHER, TIME]
ANSWER: Any = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def checked(calls: Any) -> list[tuple[str, Any]]:
    """Names and arguments of calls, which are valid."""
    result = []
    for call in calls:
        assert call.type == "function"
        arguments = json.loads(call.function.arguments)
        Draft202012Validator(SCHEMAS[call.function.name]).validate(arguments)
        result.append((call.function.name, arguments))
    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids)
    assert all(identifier.startswith("call_") for identifier in ids)
    return result


def streamed(chunks: list[Any], index: int = 0) -> tuple[dict[str, Any], str | None]:
    """The message and the finish reason of one choice, put together as OpenAI's documentation says."""
    message: dict[str, Any] = {"content": None, "tool_calls": []}
    finish = None
    begun = False
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            assert finish is None, "a chunk after the last"
            delta = choice["delta"]
            assert ("role" in delta) is not begun
            begun = True
            message["content"] = (message["content"] or "") + (delta.get("content") or "") or None
            seen = [call["index"] for call in delta.get("tool_calls", ())]
            assert len(set(seen)) == len(seen)
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    assert set(call) == {"index", "id", "type", "function"}
                    assert call["function"]["arguments"] == ""
                    message["tool_calls"].append(
                        {"id": call["id"], "type": call["type"], "function": dict(call["function"])}
                    )
                else:
                    assert set(call) == {"index", "function"}
                    assert set(call["function"]) == {"arguments"}
                    function = message["tool_calls"][call["index"]]["function"]
                    function["arguments"] += call["function"]["arguments"]
            finish = choice["finish_reason"]
    return message, finish


def without_ids(message: dict[str, Any]) -> Any:
    """Content and calls of a message, for comparison."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return message["content"] or None, calls


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_time"}}])
def test_a_call_is_made(openai: OpenAI, choice: Any) -> None:
    completion: Any = openai.chat.completions.create(**chat(), tools=TOOLS, tool_choice=choice)
    (answer,) = completion.choices
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    calls = checked(answer.message.tool_calls)
    assert calls
    if choice != "required":
        assert [name for name, _ in calls] == ["get_time"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "required"},
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
        {
            "tool_choice": {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "get_time"}}],
                },
            }
        },
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"n": 3, "tool_choice": "required"},
        {"max_tokens": 60, "at_limit": "cut", "tool_choice": "required"},
        {"max_tokens": 80, "tool_choice": "required"},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMAS["get_time"]},
            }
        },
    ],
)
def test_p13_a_stream_gives_the_same_message(http: httpx.Client, fields: dict[str, Any]) -> None:
    for seed in range(4):
        body = {**chat(), "tools": TOOLS, **fields, "seed": seed}
        whole = ok(http.post(CHAT, json=body))
        options = {"include_usage": True}
        response = http.post(CHAT, json={**body, "stream": True, "stream_options": options})
        *chunks, last = chunks_of(response.text)
        assert last["usage"] == whole["usage"]
        assert all(chunk["usage"] is None for chunk in chunks)
        for choice in whole["choices"]:
            message, finish = streamed(chunks, choice["index"])
            assert without_ids(message) == without_ids(choice["message"])
            assert finish == choice["finish_reason"]
            if choice["message"].get("tool_calls") and finish != "length":
                assert finish == "tool_calls"
            assert "tool_call" not in (message["content"] or "")


def test_p10_a_cut_call_is_length_with_its_arguments_so_far(openai: OpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "get_weather"}}
    completion: Any = openai.chat.completions.create(
        **chat(max_tokens=58), tools=TOOLS, tool_choice=choice, extra_body={"at_limit": "cut"}
    )
    (answer,) = completion.choices
    assert answer.finish_reason == "length"
    assert answer.message.content is None
    (call,) = answer.message.tool_calls
    assert call.function.name == "get_weather"
    assert call.function.arguments.startswith('{"city')
    assert not call.function.arguments.endswith("}")


CALLS = (
    'Let me < check.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Z}\\"ürich", "days": 2}}\n'
    '</tool_call>\n<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server whose model says some text and calls two tools, if it may."""
    from support.sim import sim_arguments

    config = {"sim": {"text": "script", "script": CALLS}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("script"), config)) as process:
        yield process


def test_p9_auto_gives_text_and_calls(script: ServerProcess) -> None:
    with OpenAI(base_url=f"{script.base_url}/v1", api_key="x", max_retries=0) as client:
        completion: Any = client.chat.completions.create(**chat(), tools=TOOLS)
        (answer,) = completion.choices
        assert answer.finish_reason == "tool_calls"
        assert answer.message.content == "Let me < check."
        assert checked(answer.message.tool_calls) == [
            ("get_weather", {"city": 'Z}"ürich', "days": 2}),
            ("get_time", {"zone": "UTC"}),
        ]
        with client.chat.completions.stream(**chat(), tools=TOOLS) as stream:
            final = stream.get_final_completion().choices[0]
        assert final.finish_reason == "tool_calls"
        assert final.message.content == answer.message.content
        assert [(call.function.name, call.function.arguments) for call in final.message.tool_calls or ()] == [
            (call.function.name, call.function.arguments) for call in answer.message.tool_calls
        ]


def test_log_probabilities_cover_every_token_of_a_call(script: ServerProcess) -> None:
    body = {**chat(), "tools": TOOLS, "logprobs": True}
    with httpx.Client(base_url=script.base_url) as http:
        whole = ok(http.post(CHAT, json=body))
        chunks = chunks_of(http.post(CHAT, json={**body, "stream": True}).text)
    tokens = whole["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens).startswith("Let me")
    pieces = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"]]
    assert [token for piece in pieces if piece for token in piece["content"]] == tokens


def test_answers_are_as_openai_describes_them(script: ServerProcess) -> None:
    for fields in ({"tools": TOOLS, "logprobs": True}, {"functions": [tool["function"] for tool in TOOLS]}):
        body = {**chat(), **fields}
        with httpx.Client(base_url=script.base_url, timeout=60) as http:
            validate("CreateChatCompletionResponse", ok(http.post(CHAT, json=body)))
            options = {"stream": True, "stream_options": {"include_usage": True}}
            for one in chunks_of(http.post(CHAT, json={**body, **options}).text):
                validate("CreateChatCompletionStreamResponse", one)


def test_p14_one_call_only(script: ServerProcess) -> None:
    with httpx.Client(base_url=script.base_url) as http:
        body = ok(http.post(CHAT, json={**chat(), "tools": TOOLS, "parallel_tool_calls": False}))
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"


def test_none_and_a_tool_that_is_not_allowed(script: ServerProcess) -> None:
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    with httpx.Client(base_url=script.base_url) as http:
        for choice in ("none", {"type": "allowed_tools", "allowed_tools": allowed}):
            body = ok(http.post(CHAT, json={**chat(), "tools": TOOLS, "tool_choice": choice}))
            message = body["choices"][0]["message"]
            assert "<tool_call>" not in (message["content"] or "")
            names = [call["function"]["name"] for call in message.get("tool_calls", ())]
            assert "get_weather" not in names
            assert choice != "none" or not names


def test_the_older_functions(script: ServerProcess) -> None:
    functions = [tool["function"] for tool in TOOLS]
    body = {**chat(), "functions": functions}
    with httpx.Client(base_url=script.base_url) as http:
        (choice,) = ok(http.post(CHAT, json=body))["choices"]
        assert choice["finish_reason"] == "function_call"
        assert "tool_calls" not in choice["message"]
        call = choice["message"]["function_call"]
        assert (call["name"], json.loads(call["arguments"])["days"]) == ("get_weather", 2)
        chunks = chunks_of(http.post(CHAT, json={**body, "stream": True}).text)
        deltas = [choice["delta"].get("function_call", {}) for chunk in chunks for choice in chunk["choices"]]
        assert "".join(delta.get("name", "") for delta in deltas) == "get_weather"
        assert "".join(delta.get("arguments", "") for delta in deltas) == call["arguments"]
        choice = ok(http.post(CHAT, json={**body, "function_call": {"name": "get_time"}}))["choices"][0]
        assert choice["message"]["function_call"]["name"] == "get_time"


def test_history_is_shown_to_the_model(http: httpx.Client) -> None:
    """A template without tools: the conversation holds them as text. Arguments as text and as object."""
    prompts = []
    for arguments in ('{"city": "Rome"}', {"city": "Rome"}):
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": arguments},
        }
        messages = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
        ]
        body = {
            **chat(),
            "messages": messages,
            "tools": TOOLS,
            "return_expanded_prompt": True,
            "max_tokens": 1,
        }
        prompts.append(ok(http.post(CHAT, json=body))["expanded_prompt"])
    assert prompts[0] == prompts[1]
    assert "Be brief." in prompts[0]
    assert '"description": "The weather in a city."' in prompts[0]
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>' in prompts[0]
    assert "<tool_response>\nsunny\n</tool_response>" in prompts[0]


def test_the_older_history(http: httpx.Client) -> None:
    messages = [
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": "{}"}},
        {"role": "function", "name": "get_weather", "content": "sunny"},
    ]
    body = {**chat(), "messages": messages, "return_expanded_prompt": True, "max_tokens": 1}
    prompt = ok(http.post(CHAT, json=body))["expanded_prompt"]
    assert '{"name": "get_weather", "arguments": {}}' in prompt
    assert "sunny" in prompt


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"type": "object", "properties": {"a": {"type": "nonsense"}}}, ".properties.a.type"),
        ({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, ".properties.a.$ref"),
        ({"type": "object", "properties": {"a": {"pattern": "(?<=a)b"}}}, ".properties.a.pattern"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_schema_is_named(http: httpx.Client, parameters: Any, param: str, stream: bool) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": parameters}}
    error = error_of(http.post(CHAT, json={**chat(), "tools": [*TOOLS, bad], "stream": stream}))
    assert error["param"] == f"tools[2].function.parameters{param}"
    old = {**chat(), "functions": [bad["function"]], "stream": stream}
    assert error_of(http.post(CHAT, json=old))["param"] == f"functions[0].parameters{param}"


@pytest.mark.parametrize("own", [{}, {"x-guidance": {"residual": "verify"}}])
def test_arguments_that_no_grammar_holds_are_refused(http: httpx.Client, own: Any) -> None:
    """The check of whole answers does not follow the arguments of calls."""
    unique = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    parameters = {"type": "object", "properties": {"a": unique}, "required": ["a"], **own}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for choice in ("auto", "required"):
        error = error_of(http.post(CHAT, json={**chat(), "tools": [tool], "tool_choice": choice}))
        assert error["code"] == "invalid_grammar"
        assert error["param"] == "tools[0].function.parameters.properties.a.uniqueItems"
        assert "uniqueItems" in error["message"]


def test_a_grammar_beside_tools_that_could_write_calls_is_refused(openai: OpenAI) -> None:
    with pytest.raises(openai_package.BadRequestError) as caught:
        openai.chat.completions.create(**chat(), tools=TOOLS, extra_body={"guided_regex": ".*"})
    assert caught.value.param == "guided_regex"
    completion: Any = openai.chat.completions.create(
        **chat(), tools=TOOLS, tool_choice="none", extra_body={"guided_regex": "[ab]{3}"}
    )
    assert len(completion.choices[0].message.content or "") == 3


def test_128_tools(start_server: StartServer) -> None:
    server = start_server(runtime={"max_seq_len": 65536})
    functions = [{**WEATHER["function"], "name": f"tool_{number}"} for number in range(128)]
    tools: list[Any] = [{"type": "function", "function": function} for function in functions]
    choice: Any = {"type": "function", "function": {"name": "tool_77"}}
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0) as client:
        completion: Any = client.chat.completions.create(**chat(), tools=tools, tool_choice=choice)
        (call,) = completion.choices[0].message.tool_calls
        assert call.function.name == "tool_77"
        auto = client.chat.completions.create(**chat(), tools=tools, response_format={"type": "json_object"})
        assert auto.choices[0].finish_reason in ("stop", "tool_calls")
        with pytest.raises(openai_package.BadRequestError) as caught:
            client.chat.completions.create(**chat(), tools=[*tools, WEATHER])
        assert caught.value.param == "tools"


def test_an_unknown_parser_ends_the_start(start_server: StartServer) -> None:
    server = start_server(wait=False, tools={"parser": "nonsense"})
    assert server.process.wait(60) != 0
    assert "tools.parser" in server.output
