"""Guesses at next tokens beside thinking and a schema, with the real model."""

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
