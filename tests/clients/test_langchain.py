"""``langchain-openai``: structured output by each of its methods, tools, streams."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import pytest
from conftest import KEY
from judge import Judge
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel
from shapes import Order, Person, Weather


def chat(judge: Judge, model: str = "sim", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=f"{judge.url}/v1", api_key=KEY, model=model, seed=1, max_retries=0, **options)


@tool
def weather(city: str, days: int) -> str:
    """The weather of a city."""
    return f"{days} sunny days in {city}"


class Answer(TypedDict):
    """An answer with a mark."""

    text: str
    mark: Literal[1, 2, 3]


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("shape", [Person, Order])
def test_structured_output(sim: Judge, method: Any, shape: type[BaseModel]) -> None:
    answer = chat(sim).with_structured_output(shape, method=method).invoke("Describe somebody.")
    assert isinstance(answer, shape)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
@pytest.mark.parametrize("strict", [None, True, False])
def test_structured_output_of_a_typed_dict(sim: Judge, method: Any, strict: bool | None) -> None:
    if strict is not None and method == "json_schema":
        strict = True
    answer = chat(sim).with_structured_output(Answer, method=method, strict=strict).invoke("Say something.")
    assert set(answer) == {"text", "mark"}
    assert answer["mark"] in (1, 2, 3)


def test_json_mode(sim: Judge) -> None:
    answer = chat(sim).with_structured_output(None, method="json_mode").invoke("Answer in JSON.")
    assert isinstance(answer, dict)


def test_the_raw_answer_beside_the_parsed(sim: Judge) -> None:
    answer = chat(sim).with_structured_output(Weather, include_raw=True).invoke("Rome?")
    assert isinstance(answer["parsed"], Weather)
    assert answer["parsing_error"] is None
    assert answer["raw"].usage_metadata["output_tokens"] > 0


def test_structured_streams(sim: Judge) -> None:
    parts = list(chat(sim).with_structured_output(Weather, method="json_schema").stream("Rome?"))
    assert isinstance(parts[-1], Weather)


def test_a_conversation_with_tools(demo: Judge) -> None:
    model = chat(demo, "demo", temperature=0, max_tokens=100)
    messages: list[Any] = [HumanMessage("What is the weather in Rome for the next 2 days?")]
    answer = model.bind_tools([weather], tool_choice="required").invoke(messages)
    assert answer.tool_calls
    assert not answer.invalid_tool_calls
    messages.append(answer)
    for call in answer.tool_calls:
        result = weather.invoke(call)
        assert isinstance(result, ToolMessage)
        messages.append(result)
    assert model.invoke(messages).content


def test_a_stream_of_calls(sim: Judge) -> None:
    model = chat(sim).bind_tools([weather], tool_choice="weather")
    whole: Any = None
    for part in model.stream("Rome?"):
        whole = part if whole is None else whole + part
    (call,) = whole.tool_calls
    assert set(call["args"]) == {"city", "days"}


def test_streams_and_batches(sim: Judge) -> None:
    model = chat(sim, max_tokens=20)
    parts = [part.content for part in model.stream("Hello")]
    assert "".join(parts) == model.invoke("Hello").content
    assert len(model.batch(["a", "b", "c"])) == 3


def test_completions(sim: Judge) -> None:
    model = OpenAI(base_url=f"{sim.url}/v1", api_key=KEY, model="sim", seed=1, max_tokens=8, max_retries=0)
    assert model.invoke("Once upon a time")
    assert "".join(model.stream("Once")) == model.invoke("Once")
