"""``litellm`` as a client of Triton's routes: generate, its stream, infer, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import litellm
import pytest
from shapes import Person

from support.server import ServerProcess

MESSAGES = [{"role": "user", "content": "Tell me something."}]


@pytest.fixture(scope="module")
def sim_server() -> Iterator[ServerProcess]:
    """Without a key: this client sends Triton none."""
    with ServerProcess("--backend", "sim", "--served-model-name", "sim") as process:
        yield process


def ask(server: ServerProcess, route: str, **options: Any) -> Any:
    url = f"{server.base_url}/v2/models/sim/{route}"
    return litellm.completion(model="triton/sim", messages=MESSAGES, api_base=url, **options)


@pytest.mark.parametrize("route", ["generate", "infer"])
def test_answers_are_the_routes_own(sim_server: ServerProcess, route: str) -> None:
    text = ask(sim_server, route, max_tokens=12).choices[0].message.content
    assert text
    assert ask(sim_server, route, max_tokens=5).choices[0].message.content == text[:5]


def test_a_stream(sim_server: ServerProcess) -> None:
    whole = ask(sim_server, "generate", max_tokens=30).choices[0].message.content
    parts = list(ask(sim_server, "generate", max_tokens=30, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole


@pytest.mark.parametrize("route", ["generate", "infer"])
def test_a_guide(sim_server: ServerProcess, route: str) -> None:
    guide = json.dumps(Person.model_json_schema())
    options = {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": guide}
    answer = ask(sim_server, route, max_tokens=200, **options)
    Person.model_validate_json(answer.choices[0].message.content)


@pytest.mark.parametrize("route", ["generate", "infer"])
def test_errors_carry_the_servers_words(sim_server: ServerProcess, route: str) -> None:
    with pytest.raises(Exception, match="frobnicate"):
        ask(sim_server, route, frobnicate="x")
