"""No request holds the event loop: its turns are measured from within while large bodies come."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.hostile import loop_probe
from support.hostile.figures import record
from support.hostile.form import FULL, by_form
from support.server import ServerProcess
from support.sim import sim_arguments

MOST_MS = 10.0
"""One turn of the loop, on a machine that does nothing else: asserted in the full form only. Twice what is
aimed at, for what else a machine does."""
MOST_FOR_TEXT_MS = 25.0
"""The same where one text is nearly all of a body of 8 MB: the interpreter decodes it in one go."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MANY = 70_000
QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 2}


def chat(**fields: Any) -> tuple[str, dict[str, Any]]:
    return CHAT, {**QUESTION, **fields}


def conversation(*messages: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return CHAT, {"messages": [QUESTION["messages"][0], *messages, QUESTION["messages"][0]]}


def call(index: int, arguments: str) -> dict[str, Any]:
    return {"id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": arguments}}


def schema(value: Any) -> tuple[str, dict[str, Any]]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": value}})


BODIES: dict[str, Callable[[int], tuple[str, Any]]] = {
    "messages": lambda n: conversation(*[{"role": "user", "content": "x"}] * n),
    "parts": lambda n: conversation({"role": "user", "content": [{"type": "text", "text": "x"}] * n}),
    "unknown": lambda n: chat(unknown=[{"a": [1]}] * n),
    "metadata": lambda n: chat(metadata={str(i): "x" for i in range(n)}),
    "nested": lambda n: chat(chat_template_kwargs={"a": [[[[1]]]] * n}),
    "deep, without commas": lambda n: chat(unknown=[json.loads("[" * 90 + "]" * 90)] * (n // 90)),
    "enum": lambda n: schema({"enum": [f"v{i}" for i in range(n)]}),
    "properties": lambda n: schema({"properties": {f"v{i}": {"type": "string"} for i in range(n)}}),
    "tools": lambda n: chat(
        tools=[{"type": "function", "function": {"name": f"f{i}", "parameters": {}}} for i in range(n)]
    ),
    "calls": lambda n: conversation({"role": "assistant", "tool_calls": [call(i, "{}") for i in range(n)]}),
    "arguments": lambda n: conversation(
        {"role": "assistant", "tool_calls": [call(0, json.dumps({"a": [1] * n}))]}
    ),
    "logit_bias": lambda n: chat(logit_bias={str(i): 1 for i in range(n)}),
    "stop": lambda n: chat(stop=["x"] * n),
    "tokens": lambda n: (COMPLETIONS, {"prompt": [1] * n}),
    "prompts of tokens": lambda n: (COMPLETIONS, {"prompt": [[1]] * n}),
    "prompts": lambda n: (COMPLETIONS, {"prompt": ["x"] * n}),
    "embeddings": lambda n: ("/v1/embeddings", {"input": ["x"] * n}),
    "detokenize": lambda n: ("/detokenize", {"tokens": [1] * n}),
    "items": lambda n: ("/v1/responses", {"input": [{"role": "user", "content": "x"}] * n}),
    "blocks": lambda n: (
        "/v1/messages",
        {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * n}]},
    ),
    "text_input": lambda n: ("/v2/models/sim-model/generate", {"text_input": ["x"] * n}),
    "one text": lambda n: conversation({"role": "user", "content": "é漢😀" * 10 * n}),
}


@pytest.mark.timeout(600)
def test_large_bodies_do_not_hold_the_loop(tmp_path: Path) -> None:
    notes = tmp_path / "turns"
    command = (sys.executable, loop_probe.__file__, str(notes))
    longest: dict[str, float] = {}
    with (
        ServerProcess(*sim_arguments(tmp_path, {}), command=command) as server,
        httpx.Client(base_url=server.base_url, timeout=120) as client,
    ):
        for name, make in BODIES.items():
            path, fields = make(by_form(MANY // 5, MANY))
            body = json.dumps(fields, ensure_ascii=False).encode()
            # Other programs hold the loop as well, once in a while.
            longest[name] = min(_longest_turn_ms(client, path, body, notes) for _ in range(by_form(1, 5)))
    slowest = max(longest, key=longest.__getitem__)
    record("turns of the loop", f"{len(BODIES)} large bodies, longest {longest[slowest]:.1f} ms ({slowest})")
    if FULL:
        slow = {
            name: milliseconds
            for name, milliseconds in longest.items()
            if milliseconds > (MOST_FOR_TEXT_MS if name == "one text" else MOST_MS)
        }
        assert not slow, slow


def _longest_turn_ms(client: httpx.Client, path: str, body: bytes, notes: Path) -> float:
    begun = time.time()
    answer = client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404, 413, 422), answer.text[:200]
    # The turn that is under way is noted at its end.
    client.get("/health")
    turns = [line.split() for line in notes.read_text().splitlines()]
    return max((float(late) * 1000 for ended, late in turns if float(ended) >= begun), default=0.0)
