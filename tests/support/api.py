"""Requests and the parts of responses that many tests look at."""

from __future__ import annotations

import json
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


RECEIPT_OF_ITS_TIME = frozenset({"compile_ms", "mask_ms", "grammar_cached"})
"""Members of a receipt (docs/receipt.md) that differ between equal answers."""


def chat(content: Any = "Tell me something.", **fields: Any) -> dict[str, Any]:
    """The body of a chat request with one user message."""
    return {"model": "sim-model", "messages": [{"role": "user", "content": content}], "seed": 7, **fields}


def ok(response: httpx.Response) -> dict[str, Any]:
    """The body of a successful response."""
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def error_of(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    """The error object; fails if the status or its form is not as expected."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    assert len(body["error"]["message"]) < 2000
    error: dict[str, Any] = body["error"]
    return error


def text_of(body: dict[str, Any], index: int = 0) -> str:
    """The answer of a chat completion."""
    text: str = body["choices"][index]["message"]["content"]
    return text


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The JSON chunks of a stream; fails if it does not end with [DONE]."""
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    assert events[-1] == "data: [DONE]", events[-1]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice of a stream, of either route."""
    text = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
    return text


def finish_reasons(chunks: list[dict[str, Any]]) -> dict[int, str]:
    """The finish reason of every choice of a stream; fails if a choice has more than one."""
    reasons: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["finish_reason"] is not None:
                assert choice["index"] not in reasons
                reasons[choice["index"]] = choice["finish_reason"]
    return reasons


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 200},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
"""A schema whose answers are short."""


def json_schema_format(schema: Any, **fields: Any) -> dict[str, Any]:
    """OpenAI's ``response_format`` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **fields}}


PERSON_FORMAT = json_schema_format(PERSON, strict=True)


def stream_chunks(http: httpx.Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a request's stream."""
    response = http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return chunks_of(response.text)
