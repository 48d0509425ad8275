"""Structural tags over HTTP, under each of the names that other servers have for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, chat, chunks_of, error_of, joined, ok, text_of
from support.server import ServerProcess
from support.sim import sim_arguments
from support.thinking import TEMPLATE, TOOL

DIGITS = {"type": "regex", "pattern": "[0-9]{3}"}
TAG = {"type": "tag", "begin": "<f=x>", "content": DIGITS, "end": "</f>"}
FORMAT = {"type": "triggered_tags", "triggers": ["<f="], "tags": [TAG]}
TREE = {"type": "structural_tag", "format": FORMAT}
OLDER = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<f=x>", "schema": {"type": "integer", "minimum": 100, "maximum": 999}, "end": "</f>"}
    ],
    "triggers": ["<f="],
}
SCRIPT = "So: <f=y>12345</f>, and <f=x>1</g> it is."

FIELDS: list[dict[str, Any]] = [
    {"response_format": TREE},
    {"response_format": OLDER},
    {"structured_outputs": {"structural_tag": TREE}},
    {"structured_outputs": {"structural_tag": json.dumps(TREE), "json": None}},
    {"structural_tag": json.dumps(OLDER)},
]


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A model that would like to write tags wrongly."""
    config = {"sim": {"text": "script", "script": SCRIPT}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("tags"), config)) as server:
        yield server


@pytest.fixture(scope="module")
def tags(scripted: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted.base_url, timeout=60) as client:
        yield client


def check(text: str) -> None:
    """The text is free, and every tag in it is as it must be."""
    assert text.startswith("So: <f=x>")
    assert text.count("<f=") == len(re.findall(r"<f=x>[0-9]{3}</f>", text)) > 0


@pytest.mark.parametrize("fields", FIELDS)
def test_tags_follow_their_constraint(tags: httpx.Client, fields: dict[str, Any]) -> None:
    body = chat(max_tokens=80, **fields)
    check(text_of(ok(tags.post(CHAT, json=body))))
    check(joined(chunks_of(tags.post(CHAT, json={**body, "stream": True}).text)))
    for stream in (False, True):
        completion = {"prompt": "x", "max_tokens": 80, "seed": 7, "stream": stream, **fields}
        response = tags.post(COMPLETIONS, json=completion)
        check(joined(chunks_of(response.text)) if stream else ok(response)["choices"][0]["text"])


def test_the_stock_client_sends_one(scripted: ServerProcess) -> None:
    with OpenAI(base_url=f"{scripted.base_url}/v1", api_key="unused", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="sim-model",
            messages=[{"role": "user", "content": "Go."}],
            max_tokens=80,
            extra_body={"response_format": TREE},
        )
        response = client.responses.create(
            model="sim-model", input="Go.", max_output_tokens=80, extra_body={"text": {"format": TREE}}
        )
    check(answer.choices[0].message.content or "")
    check(response.output_text)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("tag", "at"),
    [
        ({"content": {"type": "json_schema", "json_schema": {"type": "x"}}}, "content.json_schema.type"),
        ({"content": {"type": "regex", "pattern": "("}}, "content.pattern"),
        ({"content": {"type": "qwen_xml_parameter", "json_schema": {}}}, "content.type"),
        ({"begin": "<g>"}, "begin"),
        # What no grammar holds is refused: parts of an answer are not checked beside the grammar.
        (
            {
                "content": {
                    "type": "json_schema",
                    "json_schema": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
                }
            },
            "content.json_schema",
        ),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_its_path(
    tags: httpx.Client, path: str, stream: bool, tag: dict[str, Any], at: str
) -> None:
    form = {"type": "structural_tag", "format": {**FORMAT, "tags": [TAG, {**TAG, **tag}]}}
    body = chat(stream=stream, response_format=form)
    if path == COMPLETIONS:
        body = {"prompt": "x", "stream": stream, "response_format": form}
    error = error_of(tags.post(path, json=body))
    assert error["param"].startswith(f"response_format.format.tags[1].{at}")


def test_beside_another_constraint_it_is_refused(tags: httpx.Client) -> None:
    error = error_of(tags.post(CHAT, json=chat(response_format=TREE, guided_regex="a")))
    assert error["param"] == "guided_regex"


def test_a_thinking_model_thinks_first(tmp_path_factory: pytest.TempPathFactory) -> None:
    script = f"First <f=y>.\n</think>\n\n{SCRIPT}"
    config = {"sim": {"text": "script", "script": script}, "tokenizer": {"chat_template": TEMPLATE}}
    with (
        ServerProcess(*sim_arguments(tmp_path_factory.mktemp("thinker"), config)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as http,
    ):
        message = ok(http.post(CHAT, json=chat(response_format=TREE)))["choices"][0]["message"]
        assert message["reasoning_content"] == "First <f=y>."
        check(message["content"])
        bad = {"type": "structural_tag", "format": {**TAG, "content": {"type": "regex", "pattern": "("}}}
        error = error_of(http.post(CHAT, json=chat(response_format=bad)))
        assert error["param"].startswith("response_format.format.content.pattern")


def test_a_scratch_part_comes_before_it(tags: httpx.Client) -> None:
    body = chat(response_format={"type": "structural_tag", "format": TAG}, thinking={"budget_tokens": 8})
    message = ok(tags.post(CHAT, json=body))["choices"][0]["message"]
    assert message["reasoning_content"]
    assert re.fullmatch(r"<f=x>[0-9]{3}</f>", message["content"])


def test_with_a_tool_that_must_be_called_there_is_only_the_call(tags: httpx.Client) -> None:
    body = chat(response_format=TREE, tools=[TOOL], tool_choice="required")
    (choice,) = ok(tags.post(CHAT, json=body))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
