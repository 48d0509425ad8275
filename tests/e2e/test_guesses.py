"""Guesses at next tokens beside thinking and a schema, and by a draft model, with the real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from openai import OpenAI

from support.server import ServerProcess

QUOTE = "The quick brown fox jumps over the lazy dog and the quick brown fox runs away from the lazy dog."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "quote": {"type": "string", "maxLength": 120},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["quote", "n"],
    "additionalProperties": False,
}


def drafts(client: OpenAI, server: ServerProcess) -> int:
    """Guesses that the server has evaluated so far."""
    text = client.get(f"{server.base_url}/metrics", cast_to=str)
    return int(text.split("\nllgtrt_draft_tokens_total ", 1)[1].split("\n", 1)[0])


def test_a_draft_model_changes_no_answer(client: OpenAI, model_file: Path, one_thread: Path) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "q", "schema": SCHEMA}}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.9, "seed": 3},
        {"temperature": 0.7, "seed": 4, "response_format": schema},
    ]

    def answers(client: OpenAI) -> list[str | None]:
        contents: list[str | None] = []
        for number, kind in enumerate(kinds):
            messages: Any = [{"role": "user", "content": f"Write about the sea and {number} ships."}]
            body: dict[str, Any] = {"messages": messages, "max_tokens": 80, **kind}
            completion = client.chat.completions.create(model="smollm2", **body)
            contents.append(completion.choices[0].message.content)
        return contents

    arguments = ["serve", str(model_file), "-C", str(one_thread), "-md", str(model_file), "-a", "smollm2"]
    with (
        ServerProcess(*arguments) as guessing,
        OpenAI(base_url=f"{guessing.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as other,
    ):
        assert answers(other) == answers(client)
        assert f"draft_model={model_file}" in guessing.output


def test_a_draft_model_that_is_not_there_is_named(model_file: Path) -> None:
    with ServerProcess("serve", str(model_file), "--draft-model", "small.gguf", wait=False) as server:
        assert server.wait_exit() != 0
        assert "small.gguf" in server.output


def test_p33_guesses_do_not_reach_over_the_end_of_the_thinking(model_file: Path, one_thread: Path) -> None:
    with (
        ServerProcess(
            "serve", str(model_file), "-C", str(one_thread), "-a", "m", "--set", 'llamacpp.speculation="on"'
        ) as server,
        OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
    ):
        for budget in (8, 24):
            # Its own words and the prompt's come again behind the thinking: that is what is guessed from.
            completion = client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": f"Repeat exactly: {QUOTE}"}],
                temperature=0,
                max_tokens=160,
                response_format={"type": "json_schema", "json_schema": {"name": "q", "schema": SCHEMA}},
                extra_body={"thinking": {"budget_tokens": budget}},
            )
            message: Any = completion.choices[0].message
            Draft202012Validator(SCHEMA).validate(json.loads(message.content))
            assert message.reasoning
            assert "quote" not in message.reasoning
        assert drafts(client, server) > 0
