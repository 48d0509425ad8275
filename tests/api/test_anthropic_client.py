"""The Messages API through the stock ``anthropic`` client: whole and streamed, tools, thinking, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from anthropic.types import RawMessageStreamEvent
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from support.server import ServerProcess
from support.sim import FAIL_PROMPT, NAN_PROMPT, StartServer, sim_arguments
from support.thinking import CALL, TEMPLATE, TOOL

MODEL = "sim-model"
ASK: list[Any] = [{"role": "user", "content": "Tell me something."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}
TIME: Any = {
    "name": "get_time",
    "type": "custom",
    "input_schema": {
        "type": "object",
        "properties": {"zone": {"enum": ["UTC", "CET"]}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}
SCHEMAS = {tool["name"]: tool["input_schema"] for tool in (WEATHER, TIME)}
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 200, "messages": ASK, **fields}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.base_url, api_key="unused", max_retries=0, timeout=60) as one:
        yield one


def create(client: Anthropic, **fields: Any) -> Any:
    """The message, which a stream of the same request must give as well."""
    asked = {**body(**fields), "extra_body": {"seed": 7, **fields.pop("extra_body", {})}}
    whole: Any = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert simple(streamed) == simple(whole)
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    total = [one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in (streamed, whole)]
    assert total[0] == total[1] > 0
    return whole


def simple(message: Any) -> Any:
    """A message without its ids."""
    blocks = [block.model_dump(exclude={"id"}, exclude_none=True) for block in message.content]
    for block in blocks:
        block.pop("parsed_output", None)
    return blocks, message.stop_reason, message.stop_sequence, message.role, message.model


def events_of(response: httpx.Response) -> list[tuple[str, Any]]:
    """Names and data of the events of a stream."""
    assert response.status_code == 200, response.text
    events = []
    for text in response.text.split("\n\n"):
        if text and not text.startswith(":"):
            name, data = text.split("\n")
            events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


def test_a_text(client: Anthropic) -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9, "top_k": 40}
    message = create(client, system="Be brief.", extra_body=sampling)
    assert message.id.startswith("msg_")
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0


def test_its_events_come_in_order_and_fit_the_clients_types(http: httpx.Client) -> None:
    events = events_of(http.post("/v1/messages", json=body(stream=True, seed=7)))
    for name, data in events:
        assert data["type"] == name
        parsed = EVENTS.validate_python(data, strict=True)
        assert parsed.type == name
    names = [name for name, _data in events]
    deltas = names.count("content_block_delta")
    assert deltas > 0
    assert names == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert {data["index"] for _name, data in events if "index" in data} == {0}
    begun, ended = events[0][1]["message"]["usage"], events[-2][1]["usage"]
    assert begun["input_tokens"] + begun["cache_read_input_tokens"] > 0
    assert begun["input_tokens"] == ended["input_tokens"]
    assert begun["output_tokens"] <= ended["output_tokens"]


def test_the_length_and_stop_sequences(client: Anthropic) -> None:
    assert create(client, max_tokens=3).stop_reason == "max_tokens"
    text = create(client).content[0].text
    stop = text[len(text) // 2 :][:3]
    message = create(client, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert message.content[0].text == text[: text.index(stop)]


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "tool", "name": "get_time"},
        {"type": "any", "disable_parallel_tool_use": True},
    ],
)
def test_tools(client: Anthropic, choice: Any) -> None:
    message = create(client, tools=[WEATHER, TIME], tool_choice=choice, max_tokens=500)
    assert message.stop_reason == "tool_use"
    calls = [block for block in message.content if block.type == "tool_use"]
    assert calls
    for call in calls:
        Draft202012Validator(SCHEMAS[call.name]).validate(call.input)
    assert len({call.id for call in calls}) == len(calls)
    if choice["type"] == "tool":
        assert {call.name for call in calls} == {"get_time"}
    if choice.get("disable_parallel_tool_use"):
        assert len(calls) == 1


SERVED: list[Any] = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "mcp_toolset", "mcp_server_name": "files"},
]


def test_tools_of_other_servers_are_ignored_and_named(client: Anthropic) -> None:
    tools = [SERVED[0], WEATHER, *SERVED[1:]]
    raw = client.messages.with_raw_response.create(**body(tools=tools, tool_choice={"type": "any"}))
    named = raw.headers["x-llgtrt-ignored-tools"]
    assert named == "bash_20250124, mcp_toolset, web_search_20250305"
    message: Any = raw.parse()
    assert {block.name for block in message.content if block.type == "tool_use"} == {"get_weather"}
    plain = create(client)
    assert simple(create(client, tools=SERVED))[0] == simple(plain)[0]
    # Nothing is left that a scratch part could come before.
    thinking = {"type": "enabled", "budget_tokens": 1024}
    assert simple(create(client, tools=SERVED, thinking=thinking))[0] == simple(plain)[0]
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, tools=SERVED)
    assert counted == client.messages.count_tokens(model=MODEL, messages=ASK)
    for choice in ({"type": "tool", "name": "bash"}, {"type": "any"}):
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(**body(tools=SERVED, tool_choice=choice))
        error = caught.value.response.json()["error"]
        assert error["param"].startswith("tool_choice")


def test_tools_that_may_not_be_called(client: Anthropic) -> None:
    message = create(client, tools=[WEATHER], tool_choice={"type": "none"}, extra_body={"seed": 8})
    assert [block.type for block in message.content] == ["text"]


def test_a_cut_call_holds_what_is_whole_of_it(http: httpx.Client) -> None:
    fields = {"tools": [WEATHER], "tool_choice": {"type": "any"}, "at_limit": "cut", "seed": 7}
    answer = http.post("/v1/messages", json=body(**fields, max_tokens=60)).json()
    assert answer["stop_reason"] == "max_tokens"
    (block,) = answer["content"]
    assert block["type"] == "tool_use"
    assert isinstance(block["input"], dict)


def test_a_conversation_with_results(client: Anthropic) -> None:
    message = create(client, tools=[WEATHER], tool_choice={"type": "any"}, max_tokens=500)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "Sunny."}]}
        for block in message.content
        if block.type == "tool_use"
    ]
    failed = {**results[0], "content": "Rain.", "is_error": True}
    text = {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}}
    messages = [
        *ASK,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [*results, failed, text]},
    ]
    answer = create(client, messages=messages, tools=[WEATHER], extra_body={"return_expanded_prompt": True})
    prompt = answer.expanded_prompt
    for part in ("Sunny.", "Error: Rain.", "And now?", "get_weather"):
        assert part in prompt
    assert prompt.index("Sunny.") < prompt.index("Error: Rain.") < prompt.index("And now?")


@pytest.mark.parametrize("name", ["output_config", "output_format"])
def test_an_answer_of_a_schema(http: httpx.Client, name: str) -> None:
    form = {"type": "json_schema", "schema": SCHEMA}
    fields: dict[str, Any] = {name: {"format": form} if name == "output_config" else form}
    answer = http.post("/v1/messages", json=body(**fields)).json()
    Draft202012Validator(SCHEMA).validate(json.loads(answer["content"][0]["text"]))


def test_the_clients_own_way_to_a_schema(client: Anthropic) -> None:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str
        people: int

    message = client.messages.parse(**body(max_tokens=400), output_format=City)
    assert isinstance(message.parsed_output, City)


def test_a_prefilled_answer_goes_on(client: Anthropic) -> None:
    messages = [*ASK, {"role": "assistant", "content": "It was a"}]
    answer = create(client, messages=messages, extra_body={"return_expanded_prompt": True})
    assert answer.expanded_prompt.endswith("It was a")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    config = {"sim": {"text": "script", "script": CALL}, "tokenizer": {"chat_template": TEMPLATE}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("thinker"), config)) as process:
        yield process


def test_thinking(thinker: ServerProcess) -> None:
    tool = {"name": "add", "input_schema": TOOL["function"]["parameters"]}
    with Anthropic(base_url=thinker.base_url, api_key="unused", max_retries=0) as client:
        thinking: Any = {"type": "enabled", "budget_tokens": 100_000}
        message = create(client, tools=[tool], thinking=thinking)
        thought, call = message.content
        assert (thought.type, thought.thinking) == ("thinking", "Let me add.")
        assert (call.type, call.name, call.input) == ("tool_use", "add", {"n": 4})
        assert message.stop_reason == "tool_use"
        assert message.usage.output_tokens_details.thinking_tokens > 0
        history: list[Any] = [*ASK, {"role": "assistant", "content": [thought, call]}]
        history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id}]})
        create(client, messages=history, tools=[tool], thinking=thinking)
        # Nobody asked for it: the template is told not to.
        prompt = create(client, extra_body={"return_expanded_prompt": True}).expanded_prompt
        assert prompt.endswith("<think>\n\n</think>\n\n")


def test_a_budget_without_a_constraint_asks_nothing_of_a_model_that_does_not_think(client: Anthropic) -> None:
    message = create(client, thinking={"type": "enabled", "budget_tokens": 2000})
    assert [block.type for block in message.content] == ["text"]


def test_tokens_are_counted(client: Anthropic) -> None:
    system = "You are a helpful assistant."
    fields: dict[str, Any] = {"model": MODEL, "messages": ASK, "system": system, "tools": [WEATHER]}
    count = client.messages.count_tokens(**fields).input_tokens
    usage = client.messages.create(max_tokens=1, **fields).usage
    assert count == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert client.messages.count_tokens(model=MODEL, messages=ASK).input_tokens < count


def test_documents_of_text(http: httpx.Client) -> None:
    blocks = [
        {"type": "text", "text": "Read"},
        {"type": "document", "title": "Sky", "context": "A poem", "citations": {"enabled": False},
         "source": {"type": "text", "media_type": "text/plain", "data": "The sky is green."}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "part"}]}},
        {"type": "document", "source": {"type": "content", "content": "whole"}},
    ]  # fmt: skip
    asked = body(messages=[{"role": "user", "content": blocks}], max_tokens=1, return_expanded_prompt=True)
    prompt = http.post("/v1/messages", json=asked).json()["expanded_prompt"]
    assert "Read\nSky\nA poem\nThe sky is green.\npart\nwhole<|im_end|>" in prompt


FORM = {"type": "json_schema", "schema": {}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}]},
         "messages[0].content[1]"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}]},
         "messages[0].content[0].source"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text"}}]}]},
         "messages[0].content[0].source.data"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [*ASK, {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]},
         "messages[1].content[0].input"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
         "messages[0].content[0].tool_use_id"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"system": [IMAGE]}, "system[0]"),
        ({"tools": [{"type": "custom", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"type": ""}]}, "tools[0].type"),
        ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [WEATHER, {"name": "b", "input_schema": {"properties": {"a": {"type": "x"}}}}],
          "tool_choice": {"type": "any"}}, "tools[1].input_schema.properties.a.type"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
         "output_config.format.schema.type"),
        ({"output_format": FORM, "output_config": {"format": FORM}}, "output_format"),
        ({"n": 2}, "n"),
        ({"temperature": 300}, "temperature"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"max_tokens": 10**6}, "messages"),
        ({"guided_regex": "["}, "guided_regex"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_named(http: httpx.Client, fields: Any, param: str, stream: bool) -> None:
    response = http.post("/v1/messages", json=body(**fields, stream=stream))
    assert response.status_code == 400, response.text
    answer = response.json()
    assert set(answer) == {"type", "error"}
    assert answer["type"] == "error"
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"] == param
    assert param.partition("[")[0].partition(".")[0] in answer["error"]["message"]


def test_errors_arrive_as_the_clients_own(client: Anthropic, http: httpx.Client) -> None:
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**body(max_tokens=-5))
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(**body(model="other"))
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    answer = http.get("/v1/messages")
    assert (answer.status_code, answer.json()["type"]) == (405, "error")
    answer = http.post("/v1/messages/batches", json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")
    # The form is that API's only.
    assert set(http.get("/v1/message").json()) == {"error"}


def test_an_error_in_a_stream_is_raised_by_the_client(client: Anthropic) -> None:
    for prompt in (NAN_PROMPT, FAIL_PROMPT):
        messages: Any = [{"role": "user", "content": prompt}]
        asked = body(messages=messages)
        # What the model wrote before it may come with the error, and then the status is still open.
        with pytest.raises(anthropic.APIStatusError) as caught, client.messages.stream(**asked) as stream:
            stream.until_done()
        assert caught.value.body["error"]["type"] == "api_error"  # type: ignore[index]


def test_the_key(start_server: StartServer) -> None:
    server = start_server("--api-key", "Correct")
    keys: list[tuple[Any, bool]] = [
        ({"api_key": "Correct"}, True),
        ({"auth_token": "Correct"}, True),
        ({"api_key": "correct"}, False),
    ]
    for options, works in keys:
        with Anthropic(base_url=server.base_url, max_retries=0, **options) as client:
            if works:
                assert client.messages.create(**body()).content
            else:
                with pytest.raises(anthropic.AuthenticationError) as caught:
                    client.messages.create(**body())
                assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]
    assert httpx.get(f"{server.base_url}/v1/models", headers={"x-api-key": "Correct"}).status_code == 200
    assert "Correct" not in server.output
