"""/v1/responses, the default of several clients: answers, streams, schemas and tools."""

from __future__ import annotations

import instructor
import pytest
from conftest import KEY
from instructor import Mode
from judge import Judge
from langchain_openai import ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from shapes import Order, Person, Weather


def client(judge: Judge) -> OpenAI:
    return OpenAI(base_url=f"{judge.url}/v1", api_key=KEY, max_retries=0)


def test_an_answer_and_its_stream(sim: Judge) -> None:
    whole = client(sim).responses.create(model="sim", input="Tell me something.", max_output_tokens=20)
    assert whole.output_text
    # Without a limit: the helper wants a response that was completed.
    with client(sim).responses.stream(model="sim", input="Tell me something.") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == text


@pytest.mark.parametrize("shape", [Person, Order])
def test_parse(sim: Judge, shape: type[BaseModel]) -> None:
    answer = client(sim).responses.parse(model="sim", input="Describe somebody.", text_format=shape)
    assert isinstance(answer.output_parsed, shape)


def test_instructor(sim: Judge) -> None:
    one = instructor.from_openai(client(sim), mode=Mode.RESPONSES_TOOLS)
    answer = one.responses.create(model="sim", input="The weather?", response_model=Weather, max_retries=0)
    assert isinstance(answer, Weather)


def test_langchain(sim: Judge) -> None:
    chat = ChatOpenAI(
        base_url=f"{sim.url}/v1", api_key=KEY, model="sim", use_responses_api=True, max_retries=0
    )
    assert isinstance(chat.with_structured_output(Person).invoke("Describe somebody."), Person)
    assert "".join(part.text for part in chat.stream("Hello"))


@pytest.mark.parametrize("native", [False, True])
def test_pydantic_ai(sim: Judge, native: bool) -> None:
    provider = OpenAIProvider(base_url=f"{sim.url}/v1", api_key=KEY)
    output = NativeOutput(Weather) if native else Weather
    agent = Agent(OpenAIResponsesModel("sim", provider=provider), output_type=output, retries=0)
    assert isinstance(agent.run_sync("The weather?").output, Weather)
