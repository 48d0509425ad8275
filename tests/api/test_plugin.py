"""The example package of plugins: installed by pip, found by its entry points, used by a running server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from openai import OpenAI

from support.api import CHAT, chat, error_of, ok, text_of
from support.server import ServerProcess, run_llgtrt, wait_until
from support.sim import sim_arguments

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed in, as `pip install` puts it into an environment."""
    source = tmp_path_factory.mktemp("plugin") / "source"
    shutil.copytree(PLUGIN, source)
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command = [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    return target


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    config = {
        "py": {
            "hooks": "prompt-limit",
            "hooks_arguments": {"characters": 200},
            "logits_processors": ["steer"],
        },
        "tools": {"parser": "arrow"},
    }
    arguments = sim_arguments(tmp_path_factory.mktemp("config"), config)
    with ServerProcess(*arguments, env={"PYTHONPATH": str(installed)}) as process:
        yield process


def post(server: ServerProcess, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(server.base_url + CHAT, json=body, timeout=60)


def test_the_hook_watches_the_requests(server: ServerProcess) -> None:
    error = error_of(post(server, chat("word " * 100)), 413)
    assert (error["code"], "200 characters" in error["message"]) == ("prompt_too_long", True)
    assert text_of(ok(post(server, chat("Hi", max_tokens=8))))
    wait_until(lambda: "answers so far: {'nobody': 1" in server.output, "on_end was called")


def test_calls_are_written_and_read_in_the_format(server: ServerProcess) -> None:
    assert "tool format arrow of llgtrt_example_plugin.arrow:ARROW" in server.output
    body = chat("Weather?", tools=[TOOL], tool_choice="required", logprobs=True, max_tokens=100)
    choice = ok(post(server, body))["choices"][0]
    call = choice["message"]["tool_calls"][0]["function"]
    assert call["name"] == "get_weather"
    assert json.loads(call["arguments"])["city"] in ("Rome", "Oslo")
    written = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"]).decode()
    assert written.startswith("=> get_weather {")
    assert " <=" in written


def test_the_processor_acts_and_the_schema_wins(server: ServerProcess) -> None:
    vowels = list(b"aeiou")
    client = OpenAI(base_url=server.base_url + "/v1", api_key="none", max_retries=0)
    for args in ({"ban": vowels}, {"ban": vowels, "wait": {str(ord("z")): 50}}):
        answer = client.chat.completions.create(
            model="sim-model",
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=60,
            seed=1,
            extra_body={"logits_processors": [{"name": "steer", "args": args}], "ignore_eos": True},
        )
        text = answer.choices[0].message.content
        assert text
        assert not set(text) & set("aeiou")
        assert "wait" not in args or text.count("z") > 10
    city = {"enum": ["Rome", "Oslo"]}
    schema = {
        "type": "object",
        "properties": {"city": city},
        "required": ["city"],
        "additionalProperties": False,
    }
    body = chat(
        "Where?",
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema}},
        logits_processors=[{"name": "steer", "args": {"ban": vowels}}],
    )
    assert json.loads(text_of(ok(post(server, body))))["city"] in ("Rome", "Oslo")
    error = error_of(post(server, chat(logits_processors=[{"name": "steer", "args": {"bann": []}}])))
    assert "unknown: bann" in error["message"]


def test_the_engine_answers_under_a_schema(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "none.json5").write_text("{}")
    arguments = [
        "--engine-class",
        "ngram",
        "-C",
        str(tmp_path / "none.json5"),
        "--served-model-name",
        "sim-model",
    ]
    with ServerProcess(*arguments, env={"PYTHONPATH": str(installed)}) as process:
        client = OpenAI(base_url=process.base_url + "/v1", api_key="none", max_retries=0)
        said = client.completions.create(
            model="sim-model", prompt="the quick br", max_tokens=8, temperature=0
        )
        assert said.choices[0].text == "own fox "
        schema = {
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 12}, "count": {"enum": [1, 2, 3]}},
            "required": ["word", "count"],
            "additionalProperties": False,
        }
        answer = client.chat.completions.create(
            model="sim-model",
            messages=[{"role": "user", "content": "Which?"}],
            extra_body={
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "word", "strict": True, "schema": schema},
                }
            },
            max_tokens=60,
        )
        jsonschema.validate(json.loads(answer.choices[0].message.content or ""), schema)


def test_without_the_package_there_is_neither(tmp_path: Path) -> None:
    for config, message in (
        ({"py": {"hooks": "prompt-limit"}}, "no entry point 'prompt-limit' in the group llgtrt.hooks"),
        (
            {"py": {"logits_processors": "steer"}},
            "no entry point 'steer' in the group llgtrt.logits_processors",
        ),
        ({"tools": {"parser": "arrow"}}, "there is no format 'arrow'"),
    ):
        run = run_llgtrt(*sim_arguments(tmp_path, config), "--port", "0")
        assert run.returncode == 1
        assert message in run.stderr
