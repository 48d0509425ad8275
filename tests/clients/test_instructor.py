"""``instructor``: every mode that it has for servers with OpenAI's API, and what it builds on them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import instructor
import pytest
from conftest import KEY
from instructor import Mode
from judge import Judge
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, ValidationError
from shapes import Order, Person, Weather

from support.openapi import events

MESSAGES = [{"role": "user", "content": "Describe somebody."}]
MODES = [Mode.TOOLS, Mode.TOOLS_STRICT, Mode.FUNCTIONS, Mode.JSON_SCHEMA]

pytestmark = pytest.mark.filterwarnings("ignore:Mode:DeprecationWarning")


def client(judge: Judge, mode: Mode) -> instructor.Instructor:
    openai = OpenAI(base_url=f"{judge.url}/v1", api_key=KEY, max_retries=0)
    return instructor.from_openai(openai, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [Person, Order])
def test_an_object_at_the_first_attempt(sim: Judge, mode: Mode, shape: type[Person] | type[Order]) -> None:
    for seed in (1, 2):
        answer = client(sim, mode).chat.completions.create(
            model="sim", messages=MESSAGES, response_model=shape, max_retries=0, seed=seed
        )
        assert isinstance(answer, shape)


@pytest.mark.parametrize("mode", [Mode.MD_JSON, Mode.JSON_O1])
@pytest.mark.parametrize("shape", [Person, Order])
def test_what_is_asked_for_in_words_can_be_held_beside_it(
    sim: Judge, mode: Mode, shape: type[Person] | type[Order]
) -> None:
    """These modes send no schema: one goes with them as a field of this server's."""
    answer = client(sim, mode).chat.completions.create(
        model="sim",
        messages=MESSAGES,
        response_model=shape,
        max_retries=0,
        extra_body={"guided_json": shape.model_json_schema(), "seed": 1},
    )
    assert isinstance(answer, shape)


def test_responses_with_tools_of_others(sim: Judge) -> None:
    answer = client(sim, Mode.RESPONSES_TOOLS_WITH_INBUILT_TOOLS).responses.create(
        model="sim",
        input="The weather?",
        tools=[{"type": "web_search"}],
        response_model=Weather,
        max_retries=0,
    )
    assert isinstance(answer, Weather)


def test_json_mode(sim: Judge) -> None:
    class Note(BaseModel):
        text: str = ""

    answer = client(sim, Mode.JSON).chat.completions.create(
        model="sim", messages=MESSAGES, response_model=Note, max_retries=0, seed=1
    )
    assert isinstance(answer, Note)
    assert json.loads(sim.exchanges[0].request)["response_format"] == {"type": "json_object"}


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON_SCHEMA])
def test_a_part_of_the_object_while_it_grows(sim: Judge, mode: Mode) -> None:
    parts = list(
        client(sim, mode).chat.completions.create_partial(
            model="sim", messages=MESSAGES, response_model=Weather, seed=1
        )
    )
    assert parts
    Weather.model_validate(parts[-1].model_dump())


@pytest.mark.parametrize("mode", [Mode.TOOLS, Mode.JSON_SCHEMA])
def test_several_objects_one_after_the_other(sim: Judge, mode: Mode) -> None:
    found: list[Weather] = []
    for seed in range(30):
        # The list has a default in instructor's schema, so that an answer may leave it out.
        try:
            found += client(sim, mode).chat.completions.create_iterable(
                model="sim", messages=MESSAGES, response_model=Weather, seed=seed
            )
        except ValidationError:
            assert said(sim.exchanges[-1].body) in ("{}", "{ }")
        if len(found) > 1:
            break
    assert len(found) > 1
    assert all(isinstance(answer, Weather) for answer in found)


def said(body: bytes) -> str:
    """What a stream of one answer or one call says."""
    deltas = [event["choices"][0]["delta"] for event in events(body)]
    calls = [call["function"].get("arguments", "") for one in deltas for call in one.get("tool_calls", ())]
    return "".join(calls) or "".join(one.get("content") or "" for one in deltas)


def test_calls_in_parallel(calling: Judge) -> None:
    answers: Any = client(calling, Mode.PARALLEL_TOOLS).chat.completions.create(
        model="sim",
        messages=MESSAGES,
        response_model=Iterable[Weather | Person],
        max_retries=0,
    )
    assert list(answers) == [Weather(city="Rome", days=2), Weather(city="Paris", days=3)]


def test_the_model(demo: Judge) -> None:
    answer, completion = client(demo, Mode.TOOLS).chat.completions.create_with_completion(
        model="demo",
        messages=[{"role": "user", "content": "What will the weather be in Rome for the next 2 days?"}],
        response_model=Weather,
        temperature=0,
        max_retries=0,
    )
    assert 1 <= answer.days <= 7
    assert completion.usage.completion_tokens > 0


def test_the_asynchronous_client(sim: Judge) -> None:
    async def run() -> list[Weather]:
        openai = AsyncOpenAI(base_url=f"{sim.url}/v1", api_key=KEY, max_retries=0)
        client = instructor.from_openai(openai)
        asked = (
            client.chat.completions.create(
                model="sim", messages=MESSAGES, response_model=Weather, max_retries=0, seed=seed
            )
            for seed in range(4)
        )
        return await asyncio.gather(*asked)

    assert len(asyncio.run(run())) == 4
