"""``pydantic-ai``: every kind of output, function tools, streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import KEY
from judge import Judge
from pydantic_ai import Agent, NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from shapes import Order, Person, Weather


def agent(judge: Judge, output: Any, model: str = "sim", **options: Any) -> Agent[None, Any]:
    provider = OpenAIProvider(base_url=f"{judge.url}/v1", api_key=KEY)
    chat = OpenAIChatModel(model, provider=provider, settings={"seed": 1, "temperature": 0.7})
    return Agent(chat, output_type=output, retries=0, **options)


@pytest.mark.parametrize("shape", [Person, Order, Weather])
@pytest.mark.parametrize("form", [lambda shape: shape, ToolOutput, NativeOutput], ids=["", "tool", "native"])
def test_an_object_at_the_first_attempt(sim: Judge, form: Any, shape: type) -> None:
    result = agent(sim, form(shape)).run_sync("Describe somebody.")
    assert isinstance(result.output, shape)
    assert result.usage.requests == 1


def test_one_of_several(sim: Judge) -> None:
    result = agent(sim, [Person, Weather]).run_sync("Describe somebody, or the weather.")
    assert isinstance(result.output, Person | Weather)


def test_one_of_several_as_the_answer(sim: Judge) -> None:
    result = agent(sim, NativeOutput([Person, Weather])).run_sync("Describe somebody, or the weather.")
    assert isinstance(result.output, Person | Weather)


def upper(text: str) -> str:
    return text.upper()


def test_text(sim: Judge) -> None:
    assert agent(sim, str).run_sync("Hello").output
    assert agent(sim, TextOutput(upper)).run_sync("Hello").output.isupper()


def test_an_output_that_is_only_asked_for_in_words(sim: Judge) -> None:
    class Loose(Weather):
        city: str = "Rome"
        days: int = 1

    result = agent(sim, PromptedOutput(Loose)).run_sync("The weather?")
    assert isinstance(result.output, Loose)


async def stream(judge: Judge, form: Any) -> list[Any]:
    async with agent(judge, form(Weather)).run_stream("The weather?") as result:
        return [part async for part in result.stream_output(debounce_by=None)]


@pytest.mark.parametrize("form", [lambda shape: shape, NativeOutput], ids=["", "native"])
def test_an_output_while_it_grows(sim: Judge, form: Any) -> None:
    parts = asyncio.run(stream(sim, form))
    assert isinstance(parts[-1], Weather)


def test_function_tools(calling: Judge) -> None:
    asked: list[tuple[str, int]] = []
    one = agent(calling, str)

    @one.tool_plain(name="Weather")
    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        asked.append((city, days))
        return "sunny"

    # This model calls at each turn, so that only the limit ends the conversation.
    with pytest.raises(UsageLimitExceeded):
        one.run_sync("The weather in Rome and Paris?", usage_limits=UsageLimits(request_limit=2))
    assert sorted(asked) == [("Paris", 3), ("Paris", 3), ("Rome", 2), ("Rome", 2)]


def test_function_tools_and_an_output(sim: Judge) -> None:
    """Calls of a tool and of the output mix freely; in the end there is the output."""
    asked: list[int] = []
    one = agent(sim, Weather)

    @one.tool_plain
    def now(zone: int) -> str:
        """The time."""
        asked.append(zone)
        return "noon"

    result = one.run_sync("The weather?", usage_limits=UsageLimits(request_limit=40))
    assert isinstance(result.output, Weather)
    assert all(isinstance(zone, int) for zone in asked)
