"""``suffix`` with a GGUF model that has tokens to fill in a text, through llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from support.server import ServerProcess
from support.tiny_llama import BOS, MIDDLE, PREFIX, SUFFIX, tokens_of, write_llama

BEFORE, BEHIND = "def f(x):\n    return ", "\n\nprint(f(2))"


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """The stock client of a server with such a model."""
    folder = tmp_path_factory.mktemp("coder")
    config = folder / "one_thread.json5"
    config.write_text("{llamacpp: {threads: 1}}")
    model = write_llama(folder / "coder.gguf")
    with (
        ServerProcess("serve", str(model), "-C", str(config)) as server,
        OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
    ):
        yield client


def complete(client: OpenAI, prompt: Any = BEFORE, *, suffix: str | None = BEHIND, **fields: Any) -> Any:
    """The greedy answer."""
    options = {"max_tokens": 12, "temperature": 0, **fields}
    extra = {"return_token_ids": True, **options.pop("extra_body", {})}
    return client.completions.create(model="coder", prompt=prompt, suffix=suffix, extra_body=extra, **options)


def test_the_model_is_given_what_stands_before_and_behind(coder: OpenAI) -> None:
    [choice] = complete(coder).choices
    filled = [BOS, PREFIX, *tokens_of(BEFORE), SUFFIX, *tokens_of(BEHIND), MIDDLE]
    assert choice.prompt_token_ids == filled
    [same] = complete(coder, filled, suffix=None).choices
    assert choice.token_ids == same.token_ids
    # What stands behind counts, and is no part of the answer.
    [other] = complete(coder, suffix="\n\nprint(f(3))").choices
    assert other.token_ids != choice.token_ids
    assert BEHIND not in choice.text


def test_what_is_filled_in_can_be_constrained_and_streamed(coder: OpenAI) -> None:
    whole = complete(coder, extra_body={"guided_regex": r"x( [*+] [0-9x])?"})
    assert whole.choices[0].text.startswith("x")
    stream = complete(coder, stream=True, extra_body={"guided_regex": r"x( [*+] [0-9x])?"})
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
    answer = complete(coder, max_tokens=80, extra_body={"guided_json": schema})
    assert set(json.loads(answer.choices[0].text)) <= {"a"}


def test_several_prompts_have_one_suffix(coder: OpenAI) -> None:
    answer = complete(coder, [BEFORE, "x = "])
    texts = [choice.text for choice in answer.choices]
    assert texts == [complete(coder).choices[0].text, complete(coder, "x = ").choices[0].text]
