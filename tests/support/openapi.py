"""OpenAI's own description of its API (``tests/data``), as a judge of responses and stream events."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

DESCRIPTION = Path(__file__).parents[1] / "data" / "openai-openapi-subset.json"

ANSWERS = {
    "/v1/chat/completions": ("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse"),
    "/v1/completions": ("CreateCompletionResponse", "CreateCompletionResponse"),
    "/v1/responses": ("Response", "ResponseStreamEvent"),
    "/v1/embeddings": ("CreateEmbeddingResponse", None),
    "/v1/models": ("ListModelsResponse", None),
}
"""Names of a route's answer and of an event of its stream in the description."""


def validate(name: str, value: Any) -> None:
    """Fails with the place and the reason if ``value`` is not what the description calls ``name``."""
    error = next(_validator(name).iter_errors(value), None)
    if error is not None:
        raise AssertionError(f"no {name}: {_innermost(error)}\n{json.dumps(value)[:2000]}")


def validate_answer(path: str, status: int, content_type: str, body: bytes) -> int:
    """Checks the whole response of a route, errors and streams as well; gives the number of its objects."""
    whole, event = ANSWERS.get(path, ("Model", None) if path.startswith("/v1/models/") else (None, None))
    if status >= 400:
        validate("ErrorResponse", json.loads(body))
        return 1
    if content_type.startswith("text/event-stream"):
        assert event is not None, f"a stream from {path}"
        count = 0
        for data in events(body):
            # What fails after the status was sent is an event with the error.
            validate("ErrorResponse" if set(data) == {"error"} else event, data)
            count += 1
        return count
    if whole is not None:
        validate(whole, json.loads(body))
        return 1
    return 0


def events(body: bytes) -> Iterator[Any]:
    """The JSON objects of server-sent events, without the closing mark."""
    for block in body.decode().split("\n\n"):
        data = "\n".join(
            line.removeprefix("data:").removeprefix(" ")
            for line in block.split("\n")
            if line.startswith("data:")
        )
        if data and data != "[DONE]":
            yield json.loads(data)


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    schemas = _schemas()
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})


@functools.cache
def _schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = _or_null(json.loads(DESCRIPTION.read_text())["components"]["schemas"])
    # Three places where the description says less than OpenAI's own server sends: null for usage in chunks
    # before the last, null as the finish reason of a completion's parts, and no log-probability for the first
    # token of an echoed prompt.
    chunk = schemas["CreateChatCompletionStreamResponse"]["properties"]
    chunk["usage"] = _nullable(chunk["usage"])
    completion = schemas["CreateCompletionResponse"]["properties"]
    completion["usage"] = _nullable(completion["usage"])
    choice = completion["choices"]["items"]["properties"]
    choice["finish_reason"] = _nullable(choice["finish_reason"])
    logprobs = choice["logprobs"]["anyOf"][0]["properties"]
    for member in ("token_logprobs", "top_logprobs"):
        logprobs[member]["items"] = _nullable(logprobs[member]["items"])
    return schemas


def _or_null(schema: Any) -> Any:
    """The description says ``nullable`` where JSON Schema has a type."""
    if isinstance(schema, list):
        return [_or_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _or_null(value) for key, value in schema.items() if key != "nullable"}
    return _nullable(inner) if schema.get("nullable") is True else inner


def _nullable(schema: Any) -> Any:
    return {"anyOf": [schema, {"type": "null"}]}


def _innermost(error: ValidationError) -> str:
    """The reason that says most: of alternatives, that of the one which came furthest."""
    while error.context:
        error = max(error.context, key=lambda one: len(one.absolute_path))
    return f"{error.json_path}: {error.message[:500]}"
