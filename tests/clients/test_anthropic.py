"""``anthropic`` on /v1/messages: answers, streams, tools; ``instructor`` and ``litellm`` over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anthropic
import instructor
import litellm
import pytest
from anthropic import Anthropic
from conftest import KEY
from judge import Judge
from shapes import Person, Weather

MESSAGES: Any = [{"role": "user", "content": "Tell me something."}]
TOOL: Any = {"name": "Weather", "description": "The weather.", "input_schema": Weather.model_json_schema()}


def client(judge: Judge, key: str = KEY) -> Anthropic:
    return Anthropic(base_url=judge.url, api_key=key, max_retries=0)


def test_an_answer_and_its_stream(sim: Judge) -> None:
    options: Any = {"model": "sim", "messages": MESSAGES, "max_tokens": 20}
    whole = client(sim).messages.create(**options)
    assert whole.stop_reason in ("max_tokens", "end_turn")
    assert whole.usage.output_tokens > 0
    with client(sim).messages.stream(**options) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert [block.text for block in final.content if block.type == "text"] == [text]


@pytest.mark.parametrize("stream", [False, True])
def test_tools(calling: Judge, stream: bool) -> None:
    options: Any = {"model": "sim", "messages": MESSAGES, "max_tokens": 300, "tools": [TOOL]}
    if stream:
        with client(calling).messages.stream(**options) as events:
            message = events.get_final_message()
    else:
        message = client(calling).messages.create(**options)
    assert message.stop_reason == "tool_use"
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Rome", "days": 2}, {"city": "Paris", "days": 3}]


def test_errors(sim: Judge) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        client(sim, "wrong").messages.create(model="sim", messages=MESSAGES, max_tokens=5)
    with pytest.raises(anthropic.NotFoundError):
        client(sim).messages.create(model="other", messages=MESSAGES, max_tokens=5)
    with pytest.raises(anthropic.BadRequestError):
        client(sim).messages.create(model="sim", messages=[], max_tokens=5)


def test_instructor(sim: Judge) -> None:
    one = instructor.from_anthropic(client(sim))
    for shape in (Weather, Person):
        answer = one.messages.create(
            model="sim", messages=MESSAGES, max_tokens=2_000, response_model=shape, max_retries=0
        )
        assert isinstance(answer, shape)


def test_instructors_other_modes(sim: Judge, calling: Judge) -> None:
    in_words = instructor.from_anthropic(client(sim), mode=instructor.Mode.ANTHROPIC_JSON)
    answer = in_words.messages.create(
        model="sim",
        messages=MESSAGES,
        max_tokens=2_000,
        response_model=Person,
        max_retries=0,
        extra_body={"guided_json": Person.model_json_schema()},
    )
    assert isinstance(answer, Person)
    parallel = instructor.from_anthropic(client(calling), mode=instructor.Mode.ANTHROPIC_PARALLEL_TOOLS)
    answers = parallel.messages.create(
        model="sim",
        messages=MESSAGES,
        max_tokens=500,
        response_model=Iterable[Weather | Person],
        max_retries=0,
    )
    assert list(answers) == [Weather(city="Rome", days=2), Weather(city="Paris", days=3)]


def test_litellm(sim: Judge) -> None:
    answer: Any = litellm.completion(
        model="anthropic/sim", messages=MESSAGES, api_base=sim.url, api_key=KEY, max_tokens=10, num_retries=0
    )
    assert answer.choices[0].message.content
