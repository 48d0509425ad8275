"""The Responses API through the stock ``openai`` client, each object and event against OpenAI's types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai as openai_package
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from support.api import RECEIPT_OF_ITS_TIME, error_of
from support.server import ServerProcess, wait_until
from support.sim import FAIL_PROMPT, NAN_PROMPT, StartServer, sim_arguments
from support.thinking import CALL, TEMPLATE, TOOL

PATH = "/v1/responses"
MODEL = "sim-model"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather.",
    "parameters": SCHEMA,
}
ZONE: dict[str, Any] = {
    "type": "object",
    "properties": {"zone": {"enum": ["UTC", "CET"]}},
    "required": ["zone"],
    "additionalProperties": False,
}
TIME: Any = {"type": "function", "name": "get_time", "parameters": ZONE, "strict": True}
SCHEMAS = {tool["name"]: tool["parameters"] for tool in (WEATHER, TIME)}
DESCRIPTION = json.loads((Path(__file__).parents[1] / "data" / "openai-openapi-subset.json").read_text())
EVENT_NAMES = {
    schema["properties"]["type"]["enum"][0]: name
    for name, schema in DESCRIPTION["components"]["schemas"].items()
    if name.endswith("Event") and "enum" in schema.get("properties", {}).get("type", {})
}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
RESPONSE: TypeAdapter[Response] = TypeAdapter(Response)
FORM: Any = {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}


def described(name: str, value: Any) -> None:
    """Checks a value against OpenAI's description."""
    schema = {**DESCRIPTION, "$ref": f"#/components/schemas/{name}"}
    Draft202012Validator(schema, format_checker=None).validate(value)


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "Tell me something.", "seed": 7, **fields}


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, each valid under OpenAI's types, numbered from 0."""
    assert response.status_code == 200, response.text
    events: list[dict[str, Any]] = []
    for text in response.text.split("\n\n"):
        if text and not text.startswith(":"):
            name, data = text.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            assert event["sequence_number"] == len(events)
            EVENTS.validate_json(data.removeprefix("data: "), strict=True)
            described(EVENT_NAMES[event["type"]], event)
            events.append(event)
    return events


def whole(response: httpx.Response) -> dict[str, Any]:
    """A response object, valid under OpenAI's types."""
    assert response.status_code == 200, response.text
    RESPONSE.validate_json(response.content, strict=True)
    answer: dict[str, Any] = response.json()
    described("Response", answer)
    return answer


def simple(response: Any) -> Any:
    """A response without what differs each time."""
    names = {"id", "call_id", "created_at", "completed_at", "usage", *RECEIPT_OF_ITS_TIME}
    if isinstance(response, dict):
        return {name: simple(value) for name, value in response.items() if name not in names}
    return [simple(one) for one in response] if isinstance(response, list) else response


def both(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    """The response; checks that its stream ends with the same, and that the events give it piece by piece."""
    answer = whole(http.post(PATH, json=body(**fields)))
    events = events_of(http.post(PATH, json=body(**fields, stream=True)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["output"] == []
    last = events[-1]
    assert last["type"] == f"response.{answer['status']}"
    assert simple(last["response"]) == simple(answer)
    assert last["response"]["usage"]["output_tokens"] == answer["usage"]["output_tokens"]
    assert rebuilt(events[2:-1]) == last["response"]["output"]
    return answer


def rebuilt(events: list[dict[str, Any]]) -> list[Any]:
    """The output, put together from the events as OpenAI's documentation says."""
    output: list[Any] = []
    for event in events:
        kind, index = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert index == len(output)
            assert event["item"]["status"] == "in_progress"
            output.append(event["item"])
            continue
        assert index == len(output) - 1, "items follow each other"
        item = output[index]
        assert event.get("item_id", item["id"]) == item["id"]
        if kind == "response.content_part.added":
            item["content"].append(event["part"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            item["content"][event["content_index"]]["text"] += event["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done"):
            assert item["content"][event["content_index"]]["text"] == event["text"]
        elif kind == "response.content_part.done":
            part = item["content"][event["content_index"]]
            assert part["text"] == event["part"]["text"]
            item["content"][event["content_index"]] = event["part"]
        elif kind == "response.function_call_arguments.delta":
            item["arguments"] += event["delta"]
        elif kind == "response.function_call_arguments.done":
            assert (item["name"], item["arguments"]) == (event["name"], event["arguments"])
        else:
            assert kind == "response.output_item.done", kind
            assert {**item, "status": None} == {**event["item"], "status": None}
            output[index] = event["item"]
    return output


def text_of(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    (part,) = item["content"]
    text: str = part["text"]
    return text


def test_a_text(http: httpx.Client, openai: OpenAI) -> None:
    fields = {"instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.9}
    answer = both(http, **fields, user="me")
    assert answer["id"].startswith("resp_")
    assert text_of(answer)
    assert answer["status"] == "completed"
    for name, value in fields.items():
        assert answer[name] == value
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    response = openai.responses.create(
        model=MODEL, input="Tell me something.", extra_body={"seed": 7}, **fields
    )  # type: ignore[call-overload]
    assert response.output_text == text_of(answer)


def test_the_clients_stream(openai: OpenAI) -> None:
    with openai.responses.stream(model=MODEL, input="Hello", extra_body={"seed": 7}) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text != ""


def test_the_length(http: httpx.Client) -> None:
    answer = both(http, max_output_tokens=5)
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["max_output_tokens"] == 5
    assert answer["output"][0]["status"] == "incomplete"
    assert answer["usage"]["output_tokens"] == 5


def test_logprobs(http: httpx.Client) -> None:
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 3, "max_output_tokens": 12}
    answer = both(http, **fields)
    (part,) = answer["output"][0]["content"]
    assert len(part["logprobs"]) == 12
    assert all(len(token["top_logprobs"]) == 3 and token["bytes"] for token in part["logprobs"])
    events = events_of(http.post(PATH, json=body(**fields, stream=True)))
    deltas = [
        token for event in events if event["type"].endswith("text.delta") for token in event["logprobs"]
    ]
    assert [token["token"] for token in deltas] == [token["token"] for token in part["logprobs"]][
        : len(deltas)
    ]
    assert both(http)["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.parametrize(
    ("form", "check"),
    [
        (FORM, lambda text: Draft202012Validator(SCHEMA).validate(json.loads(text))),
        ({"type": "json_object"}, lambda text: json.loads(text).keys),
        ({"type": "text"}, lambda text: None),
        ({"type": "regex", "regex": "[ab]{3}"}, lambda text: set(text) <= {"a", "b"} or pytest.fail(text)),
    ],
)
def test_text_formats(http: httpx.Client, form: Any, check: Callable[[str], Any]) -> None:
    fields = {"text": {"format": form}, "max_output_tokens": 300}
    if form["type"] in ("text", "json_object", "json_schema"):
        answer = both(http, **fields)
    else:
        # No type of OpenAI's: its client would not take the echo.
        answer = http.post(PATH, json=body(**fields)).json()
    assert answer["status"] == "completed"
    assert answer["text"]["format"]["type"] == form["type"]
    check(text_of(answer))


def test_parse(openai: OpenAI) -> None:
    class City(BaseModel):
        name: str
        people: int

    response = openai.responses.parse(model=MODEL, input="A city.", text_format=City, max_output_tokens=400)
    assert isinstance(response.output_parsed, City)


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "name": "get_time"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]},
    ],
)
@pytest.mark.parametrize("parallel", [True, False])
def test_calls(http: httpx.Client, choice: Any, parallel: bool) -> None:
    fields = {"tools": [WEATHER, TIME], "tool_choice": choice, "parallel_tool_calls": parallel}
    answer = both(http, **fields, max_output_tokens=500)
    assert answer["status"] == "completed"
    calls = answer["output"]
    assert {item["type"] for item in calls} == {"function_call"}
    for call in calls:
        Draft202012Validator(SCHEMAS[call["name"]]).validate(json.loads(call["arguments"]))
    assert len({call["call_id"] for call in calls}) == len(calls)
    if choice != "required":
        assert {call["name"] for call in calls} == {"get_time"}
    if not parallel:
        assert len(calls) == 1
    assert answer["tools"][0]["parameters"] == SCHEMA
    assert answer["tool_choice"] == choice


def test_a_cut_call(http: httpx.Client) -> None:
    fields = {"tools": [WEATHER], "tool_choice": "required", "at_limit": "cut", "max_output_tokens": 60}
    answer = both(http, **fields)
    assert answer["status"] == "incomplete"
    assert [item["status"] for item in answer["output"]] == ["incomplete"]


def test_a_conversation_of_items(http: httpx.Client, openai: OpenAI) -> None:
    first = openai.responses.create(
        model=MODEL, input="The weather?", tools=[WEATHER], tool_choice="required", max_output_tokens=500
    )
    call: Any = first.output[0]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    items: list[Any] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "The weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
        *[item.model_dump() for item in first.output[:1]],
        result,
        {"role": "user", "content": "And now?"},
    ]
    answer = both(http, input=items, tools=[WEATHER], instructions="Be brief.", return_expanded_prompt=True)
    prompt = answer["expanded_prompt"]
    texts = ["Be brief.", "Be kind.", "The weather?", "get_weather", "Sunny.", "And now?"]
    # One system message, which describes the tools as well.
    at = [prompt.rindex(text) for text in texts]
    assert at[:3] == sorted(at[:3])
    assert at[2:] == sorted(at[2:])
    # The same by what is stored.
    stored = whole(
        http.post(PATH, json=body(previous_response_id=first.id, input=[result], return_expanded_prompt=True))
    )
    assert "The weather?" in stored["expanded_prompt"]
    assert "get_weather" in stored["expanded_prompt"]
    assert "Sunny." in stored["expanded_prompt"]
    assert stored["previous_response_id"] == first.id
    again = [{"role": "user", "content": "Weather?"}, {"type": "item_reference", "id": call.id}, result]
    referred = whole(http.post(PATH, json=body(input=again, return_expanded_prompt=True)))
    assert "get_weather" in referred["expanded_prompt"]


def test_what_is_stored(openai: OpenAI, http: httpx.Client) -> None:
    first = openai.responses.create(model=MODEL, input="One")
    second = openai.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    assert openai.responses.retrieve(first.id).to_dict() == first.to_dict()
    items = openai.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items.data] == ["message", "message"]
    listed: list[Any] = list(items)
    texts = [part.text for item in listed for part in item.content]
    assert texts == ["One", first.output_text, "Two"]
    assert items.data[1].id == first.output[0].id
    newest: Any = openai.responses.input_items.list(second.id, limit=1).data[0]
    assert newest.content[0].text == "Two"
    openai.responses.delete(first.id)
    for wrong in (first.id, "resp_none"):
        with pytest.raises(openai_package.NotFoundError):
            openai.responses.retrieve(wrong)
    error = error_of(http.delete(f"{PATH}/{first.id}"), 404)
    assert error["code"] == "response_not_found"
    error = error_of(http.post(PATH, json=body(previous_response_id=first.id)), 404)
    assert error["param"] == "previous_response_id"
    # The conversation is there without the response that it came from.
    assert openai.responses.create(model=MODEL, input="Three", previous_response_id=second.id).output_text
    secret = openai.responses.create(model=MODEL, input="One", store=False)
    assert http.get(f"{PATH}/{secret.id}").status_code == 404
    streamed = events_of(http.post(PATH, json=body(stream=True)))[-1]["response"]
    assert http.get(f"{PATH}/{streamed['id']}").json() == streamed


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("after=x", "after"),
    ],
)
def test_pages_that_are_refused(http: httpx.Client, query: str, param: str) -> None:
    name = whole(http.post(PATH, json=body()))["id"]
    assert error_of(http.get(f"{PATH}/{name}/input_items?{query}"))["param"] == param
    assert error_of(http.get(f"{PATH}/{name}?stream=true"))["param"] == "stream"


def test_the_store_is_bounded(start_server: StartServer) -> None:
    server = start_server(server={"stored_responses": 2, "stored_response_bytes": 20_000})
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        names = [whole(http.post(PATH, json=body(max_output_tokens=3)))["id"] for _ in range(3)]
        assert [http.get(f"{PATH}/{name}").status_code for name in names] == [404, 200, 200]
        large = whole(http.post(PATH, json=body(input="x" * 3_000, max_output_tokens=3)))["id"]
        assert http.get(f"{PATH}/{large}").status_code == 200
        metrics = http.get("/metrics").text
        count, size = (
            float(next(line for line in metrics.splitlines() if line.startswith(name)).split()[1])
            for name in ("llgtrt_stored_responses ", "llgtrt_stored_response_bytes ")
        )
        assert count == 2
        assert 3_000 < size <= 20_000


def test_a_store_of_nothing(start_server: StartServer) -> None:
    server = start_server(server={"stored_responses": 0})
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        answer = whole(http.post(PATH, json=body()))
        assert answer["store"] is False
        assert http.get(f"{PATH}/{answer['id']}").status_code == 404
        assert error_of(http.post(PATH, json=body(background=True)))["param"] == "background"


def status_is(openai: OpenAI, name: str, status: str) -> bool:
    return openai.responses.retrieve(name).status == status


def test_in_the_background(http: httpx.Client, openai: OpenAI, server: ServerProcess) -> None:
    begun = openai.responses.create(model=MODEL, input="Tell me.", background=True, extra_body={"seed": 7})
    assert begun.status == "queued"
    wait_until(lambda: openai.responses.retrieve(begun.id).status == "completed", "a response")
    response = openai.responses.retrieve(begun.id)
    assert response.output_text
    assert openai.responses.cancel(begun.id).to_dict() == response.to_dict()
    for prompt in (NAN_PROMPT, FAIL_PROMPT):
        name = whole(http.post(PATH, json=body(input=prompt, background=True)))["id"]
        ended = partial(status_is, openai, name, "failed")
        wait_until(ended, "a failure")
        error = openai.responses.retrieve(name).error
        assert error is not None
        assert error.code == "server_error"
    direct = whole(http.post(PATH, json=body()))["id"]
    assert error_of(http.post(f"{PATH}/{direct}/cancel"))["param"] == "response_id"
    assert error_of(http.post(f"{PATH}/resp_none/cancel"), 404)["code"] == "response_not_found"
    assert error_of(http.post(PATH, json=body(background=True, stream=True)))["param"] == "background"
    assert error_of(http.post(PATH, json=body(background=True, store=False)))["param"] == "background"


def test_one_in_the_background_is_cancelled(slow_server: ServerProcess) -> None:
    with httpx.Client(base_url=slow_server.base_url, timeout=60) as http:
        for end in ("cancel", "delete"):
            name = whole(http.post(PATH, json=body(background=True, ignore_eos=True)))["id"]
            going_on = http.post(PATH, json=body(previous_response_id=name))
            assert error_of(going_on)["param"] == "previous_response_id"
            if end == "cancel":
                answer = whole(http.post(f"{PATH}/{name}/cancel"))
                assert answer["status"] == "cancelled"
                assert whole(http.get(f"{PATH}/{name}"))["status"] == "cancelled"
            else:
                assert http.delete(f"{PATH}/{name}").json() == {
                    "id": name,
                    "object": "response",
                    "deleted": True,
                }
                assert http.get(f"{PATH}/{name}").status_code == 404
            wait_until(slow_server.is_idle, "an idle server")


def test_a_long_conversation_is_shortened(start_server: StartServer) -> None:
    server = start_server(runtime={"max_seq_len": 512})
    turns: list[Any] = [{"role": "system", "content": "Be brief."}]
    for number in range(12):
        turns += [
            {"role": "user", "content": f"Question {number:02} " + "x" * 60},
            {"role": "assistant", "content": f"Answer {number:02}"},
        ]
    turns.append({"role": "user", "content": "The last one"})
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        fields = {"input": turns, "max_output_tokens": 20, "return_expanded_prompt": True}
        refused = error_of(http.post(PATH, json=body(**fields)))
        assert refused["code"] == "context_length_exceeded"
        answer = whole(http.post(PATH, json=body(**fields, truncation="auto")))
        prompt = answer["expanded_prompt"]
        assert "Be brief." in prompt
        assert "The last one" in prompt
        assert "Question 00" not in prompt
        kept = [number for number in range(12) if f"Question {number:02}" in prompt]
        assert kept
        assert kept == list(range(kept[0], 12))
        # One turn more would not have fitted.
        usage = answer["usage"]["input_tokens"]
        more = [turns[0], *turns[1 + 2 * (kept[0] - 1) :]]
        counted = http.post(f"{PATH}/input_tokens", json={"model": MODEL, "input": more}).json()
        assert usage + 20 <= 512 < counted["input_tokens"] + 20
        short = {**fields, "input": "Hello", "truncation": "auto"}
        assert whole(http.post(PATH, json=body(**short)))["status"] in ("completed", "incomplete")


def test_input_tokens(openai: OpenAI, http: httpx.Client) -> None:
    fields: Any = {"model": MODEL, "input": "Hello", "instructions": "Be brief.", "tools": [WEATHER]}
    count = openai.responses.input_tokens.count(**fields)
    assert count.object == "response.input_tokens"
    assert count.input_tokens == whole(http.post(PATH, json=fields))["usage"]["input_tokens"]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = {"sim": {"text": "script", "script": CALL}, "tokenizer": {"chat_template": TEMPLATE}}
    with (
        ServerProcess(*sim_arguments(tmp_path_factory.mktemp("thinker"), config)) as process,
        httpx.Client(base_url=process.base_url, timeout=60) as client,
    ):
        yield client


def test_reasoning(thinker: httpx.Client) -> None:
    tool = {"type": "function", **TOOL["function"]}
    answer = both(thinker, tools=[tool], reasoning={"summary": "auto"})
    thought, call = answer["output"]
    assert thought["type"] == "reasoning"
    assert [part["text"] for part in thought["content"]] == ["Let me add."]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", '{"n":4}')
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "5"}
    both(thinker, input=[{"role": "user", "content": "Add."}, thought, call, result], tools=[tool])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0]"),
        ({"input": [{"type": "web_search_call", "id": "a"}]}, "input[0]"),
        ({"input": ["x", {"type": "function_call", "name": "a"}]}, "input[0]"),
        ({"input": [{"type": "function_call", "name": "a", "call_id": "b"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call", "name": "a", "call_id": "b", "arguments": "{"}]},
         "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"tools": [WEATHER, {"type": ""}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "parameters": {"type": "array"}}]}, "tools[0].parameters.type"),
        ({"tools": [{**WEATHER, "parameters": {"properties": {"a": {"type": "x"}}}}]},
         "tools[0].parameters.properties.a.type"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [{"name": "x"}]}},
         "tool_choice.tools[0].name"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "x"}}}},
         "text.format.schema.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "regex", "regex": "["}}}, "text.format.regex"),
        ({"text": {"format": FORM}, "response_format": {"type": "json_object"}}, "text.format"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"n": 2}, "n"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**6}, "input"),
        ({"truncation": "middle"}, "truncation"),
        ({"top_logprobs": 21}, "top_logprobs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_named(http: httpx.Client, fields: Any, param: str, stream: bool) -> None:
    error = error_of(http.post(PATH, json=body(**fields, stream=stream)))
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


def test_a_missing_item_is_not_found(http: httpx.Client) -> None:
    error = error_of(http.post(PATH, json=body(input=[{"type": "item_reference", "id": "msg_none"}])), 404)
    assert error["param"] == "input[0].id"


def test_an_error_in_a_stream_ends_it(http: httpx.Client) -> None:
    for prompt in (NAN_PROMPT, FAIL_PROMPT):
        response = http.post(PATH, json=body(input=prompt, stream=True))
        if response.status_code == 500:
            # What the model wrote came together with the error: the status was still open.
            assert error_of(response, 500)["type"] == "server_error"
            continue
        last = events_of(response)[-1]
        assert last["type"] == "response.failed"
        assert last["response"]["status"] == "failed"
        assert last["response"]["error"]["code"] == "server_error"
